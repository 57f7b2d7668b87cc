from __future__ import annotations

import re
import signal
import socket

import pytest

from tests import harness, program_tasks
from tests.cli import commands
from tests.training.job import PROGRAM
from tf1ps.cli import ps, worker
from tf1ps.compat import exit_codes


@pytest.fixture
def taken():
  """An address that somebody listens at."""
  with socket.socket() as listener:
    listener.bind(("", 0))
    listener.listen(1)
    yield "127.0.0.1:%d" % listener.getsockname()[1]


def hosts(ps_host):
  return ["--ps_hosts=" + ps_host, "--worker_hosts=" + harness.addresses(1)[0]]


@pytest.mark.parametrize("launched, code", [(False, 1), (True, 98)])
def test_a_port_that_is_taken(start, taken, launched, code):
  task = start("ps", ps.run, hosts(taken), launched)
  assert task.wait() == code
  assert re.match(
    r"ps 0: Could not start gRPC server: /job:ps/task:0 cannot listen at %s: another process has "
    r"that port, \d+\.\d s, exit code %d$" % (taken, code), task.last_line)


@pytest.mark.slow
@pytest.mark.parametrize("launched, code", [(False, 1), (True, exit_codes.EXIT_RELEASED)])
def test_a_ps_whose_job_has_failed_tells_its_launcher_that_the_cause_is_elsewhere(
    start, launched, code):
  argv = hosts(harness.addresses(1)[0])
  task = start("ps", ps.run, argv, launched)
  chief = start("worker", worker.run, argv + [
    PROGRAM, "--task_index=0", "--steps=1000", "--nan_at=3"], False)
  assert chief.wait() == 1 and "NaN" in chief.last_line, chief.output
  assert task.wait() == code
  assert re.match(r"ps 0: the chief released this task: the job has failed, \d+\.\d s, exit "
                  r"code 1$", task.last_line)


def test_a_launched_ps_leaves_the_warning_to_the_launcher(start):
  task = start("ps", ps.run, hosts(harness.addresses(1)[0]) + ["--start_timeout=0.1"], True)
  assert task.wait() == 1
  assert "anyone who can connect" not in task.output


def test_a_ps_to_which_nobody_comes(start):
  code, lines = commands.run(start, "tf1ps-ps", *hosts(harness.addresses(1)[0]),
                             "--start_timeout=0.2")
  assert code == 1
  assert re.match(r"ps 0: no worker came within 0\.2 s \(--start_timeout\), \d+\.\d s, exit code "
                  r"1$", lines[-1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_signal_ends_a_ps(start, number, persistent):
  argv = hosts(harness.addresses(1)[0]) + ["--persistent"] * persistent
  task = start("ps", program_tasks.run_program, "tf1ps-ps", argv, "/")
  task.wait_for("ps 0: serving at ")
  task.signal(number)
  code = 0 if persistent else 128 + number
  assert task.wait() == code
  assert re.match(r"ps 0: ended by signal %d, \d+\.\d s, exit code %d$" % (number, code),
                  task.last_line)


def test_a_persistent_ps_waits_for_nobody(start):
  # The second one has the same limit, later, and leaves: the first one would have, too.
  tasks = []
  for argv in ["--persistent"], []:
    argv = argv + hosts(harness.addresses(1)[0]) + ["--start_timeout=0.5"]
    tasks.append(start("ps", ps.run, argv))
    tasks[-1].wait_for("serving at")
  assert tasks[1].wait() == 1 and "no worker came" in tasks[1].last_line
  assert tasks[0].is_running


def test_flags_of_the_program_are_known_when_it_is_named(start, tmp_path):
  argv = hosts(harness.addresses(1)[0]) + ["--start_timeout=0.1", "--greeting=hello"]
  assert commands.run(start, "tf1ps-ps", *argv) == (
    1, ["tf1ps-ps: --greeting is not a flag (see tf1ps-ps --help)"])
  program = commands.write(tmp_path, "p.py", commands.TALKING)
  code, lines = commands.run(start, "tf1ps-ps", program, *argv)
  assert lines[0] == "imported" and "no worker came" in lines[-1]
