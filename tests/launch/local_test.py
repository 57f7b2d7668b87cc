from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from tests.launch import sample_tasks
from tf1ps.compat import exit_codes
from tf1ps.compat.timing import VARIABLE, Timing
from tf1ps.launch import local, output, restarts, watch
from tf1ps.launch.fork_server import LocalTask, TaskProcess

ENDS = {"workers_end_limit": 60.0, "workers_end_limit_after_signal": 60.0, "others_end_limit": 60.0}


def run(make_tasks, num_ps, num_workers, log_dir, preload=(), tries=5, **kwargs):
  """Runs tasks, which are a list or made of addresses; returns (exit code, lines)."""
  lines = []
  make = make_tasks if callable(make_tasks) else lambda addresses: make_tasks
  log_dir = None if log_dir is None else str(log_dir)
  job = local.local_job(num_ps, num_workers, log_dir=log_dir, **kwargs)
  outcome = local.run_tasks(job, make, preload, tries, lines.append)
  return outcome.exit_code, lines


def stay(name, folder, function=sample_tasks.stay):
  return LocalTask(name, function, (str(folder / name),))


def kill_when_started(folder, names, killed, number=signal.SIGKILL):
  """Signals one of the tasks, from a thread, when all have written their process ids.

  Returns:
    A list that then has these ids.
  """
  pids = []

  def wait_and_kill():
    found = [int(sample_tasks.read_when_there(folder / name)) for name in names]
    pids.extend(found)
    os.kill(found[names.index(killed)], number)

  threading.Thread(target=wait_and_kill).start()
  return pids


@pytest.fixture(autouse=True)
def nothing_ends_by_its_limit(set_timing):
  """Gives a busy machine its time; the tests of a limit set it."""
  set_timing(local, killed_limit=60.0, output_limit=60.0, **ENDS)
  set_timing(output, traceback_limit=60.0)
  set_timing(watch, cause_limit=60.0)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("exit_code", [0, 7])
def test_logs_of_a_good_job_may_go_and_those_of_another_one_stay(tmp_path, keeps, exit_code):
  logs = tmp_path / "logs"
  how = "exit 7" if exit_code else ""
  code, lines = run(
    [LocalTask("worker 0", sample_tasks.leave_by, (how,))], 0, 1, logs, keeps_logs=keeps)
  assert code == min(exit_code, 1)
  assert (" until a good end" in lines[0]) != keeps
  assert logs.exists() == (keeps or code == 1)
  assert code == 0 or str(logs / "worker-0.log") in lines[-1]


def test_a_warning_at_a_tasks_end_is_repeated_at_the_launchers(tmp_path):
  said = "WARNING: the data ended\nworker 0: 2 steps, exit code 0"
  code, lines = run([LocalTask("worker 0", print, (said,)),
                     LocalTask("worker 1", print, ("WARNING:absl: of a library",))], 0, 2, None)
  assert code == 0 and "[worker 0] WARNING: the data ended" in lines
  assert lines[-2] == "tf1ps-local: WARNING: the data ended"
  assert lines[-1].startswith("tf1ps-local: ok, 0 ps and 2 workers, ")
  assert len([line for line in lines if "of a library" in line]) == 1


def test_twenty_tasks(tmp_path):
  names = ["ps %d" % i for i in range(4)] + ["worker %d" % i for i in range(16)]
  code, lines = run([LocalTask(name, sample_tasks.write_to_both_streams, (i,))
                     for i, name in enumerate(names)], 4, 16, tmp_path / "logs")
  assert code == 0
  assert lines[0].startswith("tf1ps-local: started ps 0 (process ")
  assert lines[0].endswith("; logs in %s" % (tmp_path / "logs"))
  assert re.match(r"tf1ps-local: ok, 4 ps and 16 workers, \d+\.\d s$", lines[-1])
  for i, name in enumerate(names):
    expected = ["hello from %d" % i, "Grüße", "descriptor", "from C"]
    shown = [line for line in lines if line.startswith("[%s] " % name)]
    assert shown == ["[%s] %s" % (name, line) for line in expected]
    log = (tmp_path / "logs" / (name.replace(" ", "-") + ".log")).read_bytes().decode("utf-8")
    assert log.splitlines()[1:] == expected


@pytest.mark.parametrize("killed", ["ps 0", "worker 1", "evaluator 0"])
def test_a_task_that_is_killed_ends_the_others(tmp_path, killed):
  names = ["ps 0", "worker 0", "worker 1", "evaluator 0"]
  pids = kill_when_started(tmp_path, names, killed)
  code, lines = run([stay(name, tmp_path) for name in names], 1, 2, tmp_path, evaluator=True)
  assert code == 1  # those that stay would stay for longer than the test
  described = "%s was killed by SIGKILL (%s)" % (
      killed, tmp_path / (killed.replace(" ", "-") + ".log"))
  assert lines[1:-1] == ["tf1ps-local: %s: ending the others" % described]
  assert re.match(re.escape("tf1ps-local: failed: %s, " % described) + r"\d+\.\d s$", lines[-1])
  assert len(pids) == 4 and not any(map(sample_tasks.lives, pids))


def test_the_cause_is_named_and_not_its_consequences(tmp_path):
  code, lines = run([
      stay("ps 0", tmp_path),
      LocalTask("worker 0", sample_tasks.note_signal, (str(tmp_path / "noted"), 0.1, 9)),
      LocalTask("worker 1", sample_tasks.leave_by_when, ("raise", str(tmp_path / "noted.pid")))],
                    1, 2, None)
  assert code == 1
  assert (tmp_path / "noted").exists()  # Worker 0 had its time; it ended with 9, which is no news.
  first = lines.index("tf1ps-local: worker 1: Traceback (most recent call last):")
  assert 'in leave_by_when' in lines[first + 1] and "raise ValueError(" in "".join(lines[first:-1])
  assert lines[-1].startswith(
      "tf1ps-local: failed: worker 1 ended with exit code 1: ValueError: no such digit, ")
  assert [line for line in lines if "ValueError: no" in line or "Traceback" in line] == [
    lines[first], lines[-1]]  # each once


@pytest.mark.parametrize("reasons", [("no shape", "no shape"), ("no shape", "no data")])
def test_an_error_of_several_tasks_is_shown_once(tmp_path, reasons):
  names = ["worker 0", "worker 1"]
  code, lines = run([LocalTask(name, sample_tasks.complain, (str(tmp_path), name, names, reason))
                     for name, reason in zip(names, reasons)], 0, 2, tmp_path)
  assert code == 1
  assert len([line for line in lines if "Traceback" in line]) == 1
  for reason in reasons:
    assert len([line for line in lines if reason in line]) == 1, lines
  for name in names:
    log = (tmp_path / (name.replace(" ", "-") + ".log")).read_text()
    assert "Traceback (most recent call last):\n  File program.py\n" in log  # of each task


def test_a_traceback_of_a_task_that_goes_on_is_shown(tmp_path, set_timing):
  set_timing(output, traceback_limit=0.2)
  lines, done = [], str(tmp_path / "done")

  def log(line):
    lines.append(line)
    if "a trifle" in line:
      sample_tasks.write_whole(done, 1)

  worker = LocalTask("worker 0", sample_tasks.complain_and_go_on, (done,))
  outcome = local.run_tasks(local.local_job(0, 1), lambda addresses: [worker], log=log)
  assert outcome.exit_code == 0
  assert lines[1:-1] == ["[worker 0] " + line for line in (
    "Traceback (most recent call last):", "  File program.py", "ValueError: a trifle")]


@pytest.mark.parametrize("more", [0, 40])
def test_last_lines_that_still_stand_on_the_screen_are_not_repeated(tmp_path, more):
  path = str(tmp_path / "pid")
  code, lines = run([
    LocalTask("worker 0", sample_tasks.fail_when, (str(tmp_path / "done"), path)),
    LocalTask("worker 1", sample_tasks.print_lines, (more, path, str(tmp_path / "done")))],
                    0, 2, None)
  assert code == 1
  last = [line for line in lines if "last lines of worker 0" in line]
  assert len(last) == (1 if more else 0)
  assert len([line for line in lines if line.endswith("its last line")]) == len(last) + 1
  assert lines[-1].startswith("tf1ps-local: failed: worker 0 was killed by SIGKILL, ")


def test_a_task_that_was_released_waits_for_the_cause(tmp_path):
  path = str(tmp_path / "pid")
  code, lines = run([
      LocalTask("ps 0", sample_tasks.tell_and_answer, (path, exit_codes.EXIT_RELEASED)),
      LocalTask("worker 0", sample_tasks.raise_when_gone, (path,))], 1, 1, None)
  assert code == 1
  assert lines[-1].startswith(
      "tf1ps-local: failed: worker 0 ended with exit code 1: ValueError: no such digit, ")


@pytest.mark.parametrize("others", [1, 2])
def test_a_task_that_was_released_is_told_where_nobody_says_why(tmp_path, set_timing, others):
  set_timing(watch, cause_limit=0.2)
  code, lines = run([LocalTask("ps 0", sample_tasks.answer, (exit_codes.EXIT_RELEASED,)),
                     LocalTask("worker 0", sample_tasks.answer, (exit_codes.EXIT_RELEASED,))]
                    + [stay("worker 1", tmp_path)] * (others - 1), 1, others, None)
  assert code == 1
  assert re.search("failed: .*(ps|worker) 0 ended with exit code 1, ", lines[-1])


def test_a_task_that_fails_while_another_is_started_ends_the_job(tmp_path, monkeypatch):
  start = local.ForkServer.start_task

  def start_when_the_ps_has_ended(server, task):
    process = start(server, task)
    while task.name == "worker 0" and not server.ended:
      server.take()
    return process

  monkeypatch.setattr(local.ForkServer, "start_task", start_when_the_ps_has_ended)
  code, lines = run([LocalTask("ps 0", sample_tasks.answer, (7,)), stay("worker 0", tmp_path)],
                    1, 1, None)
  assert code == 1  # the worker would stay for longer than the test
  assert "failed: ps 0 ended with exit code 7, " in lines[-1]


def test_all_output_comes_before_the_word_of_the_end(tmp_path):
  lines = []

  def slow_log(line):
    threading.Event().wait(0.01)
    lines.append(line)

  worker = LocalTask("worker 0", sample_tasks.leave_by, ("many lines",))
  outcome = local.run_tasks(
    local.local_job(0, 2), lambda addresses: [worker, stay("worker 1", tmp_path)], log=slow_log)
  assert outcome.exit_code == 1
  assert lines[1:31] == ["[worker 0] line"] * 30
  assert lines[31] == "tf1ps-local: worker 0 ended with exit code 7: ending the others"


def test_tasks_that_do_not_obey_are_killed(tmp_path, set_timing):
  set_timing(local, workers_end_limit=0.4, others_end_limit=0.3)
  names = ["ps 0", "worker 0", "worker 1"]
  pids = kill_when_started(tmp_path, names, "worker 1", signal.SIGUSR1)
  code, lines = run([stay("ps 0", tmp_path, sample_tasks.stay_deaf),
                     stay("worker 0", tmp_path, sample_tasks.stay_deaf),
                     stay("worker 1", tmp_path)], 1, 2, None)
  assert code == 1
  assert lines[1:-1] == [
      "tf1ps-local: worker 1 was killed by SIGUSR1: ending the others",
      "tf1ps-local: worker 0 did not end within 0.4 s of SIGTERM: killed",
      "tf1ps-local: ps 0 did not end within 0.3 s of SIGTERM: killed"]
  assert not any(map(sample_tasks.lives, pids))


def test_the_limits_after_a_failure_stay_below_ten_seconds():
  limits = Timing()
  assert (limits.workers_end_limit + limits.others_end_limit + 2 * limits.killed_limit
          + 3 * limits.output_limit) < 10


def test_a_ps_that_does_not_leave_is_a_failure(tmp_path):
  code, lines = run([stay("ps 0", tmp_path), LocalTask("ps 1", sample_tasks.answer),
                     LocalTask("worker 0", sample_tasks.wait_for, (str(tmp_path / "ps 0"),))],
                    2, 1, None, grace=1.0)
  assert code == 1
  assert lines[-1].startswith(
      "tf1ps-local: failed: ps 0 did not end within 1 s after the last worker, ")
  assert not sample_tasks.lives(int((tmp_path / "ps 0").read_text()))


def test_a_ps_that_leaves_within_its_grace_is_none(tmp_path):
  code, lines = run([
      LocalTask("ps 0", sample_tasks.wait_for, (str(tmp_path / "first"),)),
      LocalTask("worker 0", sample_tasks.answer),
      LocalTask("worker 1", sample_tasks.write_and_leave, (str(tmp_path / "first"),)),
      LocalTask("evaluator 0", sample_tasks.wait_for, (str(tmp_path / "first"),))],
                    1, 2, None, evaluator=True)
  assert code == 0
  assert lines[-1].startswith("tf1ps-local: ok, 1 ps, 2 workers and 1 evaluator, ")


class Thief(object):
  """Makes tasks, and takes the first ps's port before they start, `times` times."""

  def __init__(self, make_task, times):
    self.addresses = []
    self._make_task = make_task
    self._sockets = [socket.socket() for _ in range(times)]

  def __call__(self, addresses):
    self.addresses.append(addresses)
    if len(self.addresses) <= len(self._sockets):
      self._sockets[len(self.addresses) - 1].bind(("", port_of(addresses["ps"][0])))
      self._sockets[len(self.addresses) - 1].listen(1)
    return [self._make_task(job, index, addresses)
            for job in ("ps", "worker") for index in range(len(addresses[job]))]

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    for taken in self._sockets:
      taken.close()


def port_of(address):
  host, port = address.split(":")
  assert host == "127.0.0.1"
  return int(port)


def make_binding(folder):
  """Tasks that bind; a worker ends when the file is there, which the last worker writes."""
  def make_task(job, index, addresses):
    return LocalTask("%s %d" % (job, index), sample_tasks.bind,
                     (port_of(addresses[job][index]), str(folder / "end"),
                      job == "worker" and index == len(addresses["worker"]) - 1))
  return make_task


def test_a_taken_port_costs_a_try(tmp_path):
  (tmp_path / "end").write_text("")
  with Thief(make_binding(tmp_path), 2) as thief:
    code, lines = run(thief, 2, 2, tmp_path)
  assert code == 0
  retries = [line for line in lines if "starting all tasks again" in line]
  assert retries == [
      "tf1ps-local: ps 0 found its port taken (%s); starting all tasks again with new "
      "ports, try %d of 5" % (tmp_path / "ps-0.log", i) for i in (2, 3)]
  assert len(thief.addresses) == 3
  assert len({addresses["ps"][0] for addresses in thief.addresses}) == 3
  assert (tmp_path / "ps-0.log").read_text().count("----\n") == 3


def test_a_taken_port_may_have_others_fail_first(tmp_path):
  starts = []

  def make_tasks(addresses):
    starts.append(addresses)
    if len(starts) == 2:
      return [LocalTask(name, sample_tasks.answer) for name in ("ps 0", "worker 0")]
    noted = str(tmp_path / "noted")
    return [LocalTask("ps 0", sample_tasks.note_signal, (noted, 0, 98)),
            LocalTask("worker 0", sample_tasks.leave_by_when, ("exit 7", noted + ".pid"))]

  code, lines = run(make_tasks, 1, 1, None)
  assert (code, len(starts)) == (0, 2)
  assert lines[1] == "tf1ps-local: worker 0 ended with exit code 7: ending the others"
  assert lines[2].startswith("tf1ps-local: ps 0 found its port taken; starting all tasks")


def test_tries_have_an_end(tmp_path):
  with Thief(make_binding(tmp_path), 2) as thief:
    code, lines = run(thief, 1, 1, None, tries=2)
  assert code == 1 and len(thief.addresses) == 2
  assert lines[-1].startswith("tf1ps-local: failed: ps 0 found its port taken, ")


@pytest.mark.slow
def test_tensorflow_servers(tmp_path):
  def make_task(job, index, addresses):
    return LocalTask("%s %d" % (job, index), sample_tasks.serve,
                     (job, index, addresses, str(tmp_path / "end")))
  with Thief(make_task, 1) as thief:
    code, lines = run(thief, 1, 2, tmp_path, preload=["tensorflow.compat.v1"])
  assert code == 0, "\n".join(lines)
  assert len(thief.addresses) == 2
  told, = [line for line in lines if line.startswith("[worker 1] v is 42")]
  # Forked from one process, the servers still are told apart by TensorFlow's own random numbers.
  numbers = re.match(r"\[worker 1\] v is 42, (\d+) devices, (\d+) incarnations", told).groups()
  assert numbers[0] == numbers[1] and int(numbers[0]) >= 3


def test_an_import_that_fails_is_told(tmp_path):
  code, lines = run([LocalTask("worker 0", sample_tasks.answer)], 0, 1, None,
                    preload=["no_such_module_at_all"])
  assert code == 1
  assert lines[0] == "tf1ps-local: Traceback (most recent call last):"
  assert lines[-1].startswith(
      "tf1ps-local: failed: ModuleNotFoundError: No module named 'no_such_module_at_all', ")


def test_a_fork_server_that_is_killed_ends_the_job(tmp_path):
  def kill_parent():
    os.kill(int(sample_tasks.read_when_there(tmp_path / "parent")), signal.SIGKILL)
  threading.Thread(target=kill_parent).start()
  code, lines = run([stay("ps 0", tmp_path),
                     LocalTask("worker 0", sample_tasks.tell_parent,
                               (str(tmp_path / "parent"), str(tmp_path / "ps 0")))],
                    1, 1, None)
  assert code == 1
  assert re.match(r"tf1ps-local: failed: the fork server \(process \d+\), which .*, has ended, ",
                  lines[-1])
  assert sample_tasks.wait_until(
      lambda: not sample_tasks.lives(int((tmp_path / "ps 0").read_text())))


def test_tasks_other_than_announced_are_refused(tmp_path):
  with pytest.raises(ValueError, match="must return ps 0, worker 0, got worker 0"):
    run([LocalTask("worker 0", sample_tasks.answer)], 1, 1, None)
  with pytest.raises(ValueError, match="worker 1 cannot be sent"):
    run([stay("worker 0", tmp_path), LocalTask("worker 1", lambda: 0)], 0, 2, None)


@pytest.mark.parametrize("name, value", [
    ("num_ps", -1), ("num_workers", 0), ("tries", 0), ("grace", -1.0),
    ("max_restarts", -1)])
def test_arguments_out_of_range_are_refused(name, value):
  arguments = {"num_ps": 1, "num_workers": 1, "log_dir": None, name: value}
  with pytest.raises(ValueError, match="%s must be . or more, got %r" % (name, value)):
    run([], **arguments)


# Restarts.


@pytest.fixture
def soon(set_timing):
  for module in (local, restarts):
    set_timing(module, restart_pause=0.05, longest_restart_pause=0.1)


def failing(name, folder, times, *more):
  return LocalTask(name, sample_tasks.fail_first, (str(folder / name), times) + more)


@pytest.mark.parametrize("kind, end", [
  ("exit 7", "ended with exit code 7 (%s): start 1"),
  ("raise", "ended with exit code 1 (%s): ValueError: no such digit"),
  ("kill", "was killed by SIGKILL (%s)")])
@pytest.mark.parametrize("failed", ["ps 0", "worker 0", "worker 1", "evaluator 0"])
def test_a_task_that_fails_is_started_again(tmp_path, soon, failed, kind, end):
  (tmp_path / "go").write_text("")
  tasks = [failing(name, tmp_path, 1, kind) if name == failed else (
    LocalTask(name, sample_tasks.wait_for, (str(tmp_path / failed),)))
           for name in ("ps 0", "worker 0", "worker 1", "evaluator 0")]
  if failed == "ps 0":  # workers that end before make its restart needless
    tasks[1] = LocalTask("worker 0", sample_tasks.wait_for_text, (str(tmp_path / failed), "2"))
  code, lines = run(tasks, 1, 2, tmp_path / "logs", evaluator=True, max_restarts=3)
  assert code == 0, lines
  log = str(tmp_path / "logs" / (failed.replace(" ", "-") + ".log"))
  assert [line for line in lines if "restart " in line] == [
    "tf1ps-local: %s %s: restart 1 of 3 at once" % (failed, end % log)]
  assert re.match(
    r"tf1ps-local: ok, 1 ps, 2 workers and 1 evaluator, 1 restart, \d+\.\d s$", lines[-1])
  separators = [line for line in open(log).read().splitlines() if line.startswith("---- ")]
  assert len(separators) == 2 and separators[0] != separators[1]


def test_a_crash_loop_ends_within_its_limit_with_the_first_failure_last(tmp_path, soon):
  code, lines = run([stay("ps 0", tmp_path), failing("worker 0", tmp_path, 9, "raise")], 1, 1,
                    None, max_restarts=4)
  assert code == 1
  assert [line.rpartition(": ")[2] for line in lines if "restart " in line] == [
    "restart 1 of 4 at once", "restart 2 of 4 in 0.05 s", "restart 3 of 4 in 0.1 s",
    "restart 4 of 4 in 0.1 s"]
  assert (tmp_path / "worker 0").read_text() == "5"
  last, = [i for i, line in enumerate(lines) if "last lines of" in line]
  assert re.match(
    r"tf1ps-local: last lines of the first failure of worker 0, process \d+ on \S+, which ended "
    r"with exit code 1 at [-\d]+ [:\d]+:$", lines[last])
  assert lines[last + 1] == "tf1ps-local:   start 1"
  assert lines[-2] == "tf1ps-local:   ValueError: no such digit"
  assert lines[-1].startswith("tf1ps-local: failed: worker 0 ended with exit code 1: ValueError: "
                              "no such digit, after 4 restarts, ")


@pytest.mark.parametrize("code", [exit_codes.EXIT_REFUSED, exit_codes.EXIT_PORT_TAKEN])
def test_what_comes_again_ends_the_job_at_once(tmp_path, soon, code):
  tasks = [stay("ps 0", tmp_path), LocalTask("worker 0", sample_tasks.answer, (code,))]
  code, lines = run(tasks, 1, 1, None, max_restarts=3, tries=1)
  assert code == 1 and not [line for line in lines if "restart " in line]
  assert re.search("failed: worker 0 (ended with exit code 1|found its port taken), ", lines[-1])


def test_an_old_failure_is_not_the_first_one_of_a_later_loop(set_timing):
  history, first, second, third = restarts.Restarts(2), *[
    TaskProcess("ps 0", pid, 0) for pid in (1, 2, 3)]
  history.note_start("ps 0")
  assert history.pause_after(first) == 0.0
  set_timing(restarts, restart_reset=0.0)  # the next start has lived long
  assert history.pause_after(second) == 0.0
  assert history.pause_after(third) is None
  assert history.first_failure(third) is third


def test_a_task_that_was_released_is_not_the_first_failure():
  history, released, failed = restarts.Restarts(1), *[
    TaskProcess("ps 0", pid, 0) for pid in (1, 2)]
  released.exit_code, failed.exit_code = exit_codes.EXIT_RELEASED, 1
  history.note_start("ps 0")
  history.pause_after(released)
  history.pause_after(failed)
  assert history.first_failure(failed) is failed


def test_a_ps_that_fails_after_the_workers_have_ended_is_not_missed(tmp_path, soon):
  tasks = [LocalTask("ps 0", sample_tasks.raise_when_gone, (str(tmp_path / "worker 0"),)),
           LocalTask("worker 0", sample_tasks.tell_and_answer, (str(tmp_path / "worker 0"), 0))]
  code, lines = run(tasks, 1, 1, None, max_restarts=3)
  assert code == 0, lines
  said = [line for line in lines if line.startswith("tf1ps-local: ps 0 ended with exit code 1")]
  assert said
  for number, line in enumerate(said, 1):  # the news of the ps's end may come first, each time
    assert line.endswith(", after the workers have ended with 0: no restart") or (
      ": restart %d of 3 " % number in line), lines


def test_a_ps_that_missed_its_release_ends(tmp_path, soon):
  tasks = [failing("ps 0", tmp_path, 1, "kill", str(tmp_path / "never")),
           LocalTask("worker 0", sample_tasks.wait_for_text, (str(tmp_path / "ps 0"), "2"))]
  code, lines = run(tasks, 1, 1, None, max_restarts=1, grace=0.1)
  assert code == 0, lines


# A launcher in a process of its own.


def test_a_signal_during_a_pause_ends_at_once(tmp_path):
  with launcher("ps 0:stay:%s" % (tmp_path / "ps"), "worker 0:fail_first:%s,9" % (
      tmp_path / "worker"), "max_restarts=9", restart_pause=1000) as process:
    pids = read_pids(tmp_path, "ps")
    while "restart 2 of 9 in 1000 s" not in process.stdout.readline():
      pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert all_gone(pids) and (tmp_path / "worker").read_text() == "2"


LAUNCHER = str(pathlib.Path(__file__).with_name("launcher_program.py"))


@contextlib.contextmanager
def launcher(*arguments, **timing):
  """Starts a launcher with these tasks, and fields of its `TIMING`; kills it at the end."""
  timing = dict(json.loads(os.environ[VARIABLE]), **dict(ENDS, **timing))
  process = subprocess.Popen([sys.executable, LAUNCHER] + list(arguments), start_new_session=True,
                             stdout=subprocess.PIPE, universal_newlines=True,
                             env=dict(os.environ, **{VARIABLE: json.dumps(timing)}))
  with process:
    try:
      yield process
    finally:
      process.kill()


def parent_of(pid):
  return int(pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[1])


def read_pids(folder, *names):
  return [int(pid) for name in names
          for pid in sample_tasks.read_when_there(folder / name).split()]


def all_gone(pids):
  return not any(map(sample_tasks.lives, pids))


def test_a_killed_launcher_leaves_nothing(tmp_path):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "deaf"),
                "worker 0:stay_deaf:%s" % (tmp_path / "stopped"),
                "worker 1:start_child:%s" % (tmp_path / "child")) as process:
    pids = read_pids(tmp_path, "deaf", "stopped", "child")
    pids.append(parent_of(pids[0]))
    for pid in pids[1:3]:
      os.kill(pid, signal.SIGSTOP)
      assert sample_tasks.wait_until(lambda pid=pid: sample_tasks.is_stopped(pid))
    process.kill()
    assert sample_tasks.wait_until(lambda: all_gone(pids))


@pytest.mark.parametrize("killed", ["launcher first", "both at once"])
def test_a_killed_launcher_leaves_nothing_even_with_a_stopped_fork_server(tmp_path, killed):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "deaf"),
                "worker 0:stay_deaf:%s" % (tmp_path / "stopped")) as process:
    pids = read_pids(tmp_path, "deaf", "stopped")
    pids.append(parent_of(pids[0]))
    for pid in pids[1:]:
      os.kill(pid, signal.SIGSTOP)
      assert sample_tasks.wait_until(lambda pid=pid: sample_tasks.is_stopped(pid))
    process.kill()
    if killed == "both at once":
      os.kill(pids[2], signal.SIGKILL)
    assert sample_tasks.wait_until(lambda: all_gone(pids))


@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_launcher_ends_during_the_imports(tmp_path, number, code):
  (tmp_path / "slow_module.py").write_text(
      "import os, threading\nfrom tests.launch import sample_tasks\n"
      "sample_tasks.write_whole(%r, os.getpid())\n"
      "threading.Event().wait(60)\n" % str(tmp_path / "server"))
  environ = dict(os.environ)
  environ["PYTHONPATH"] = os.pathsep.join([str(tmp_path), environ["PYTHONPATH"]])
  process = subprocess.Popen([sys.executable, LAUNCHER, "slow_module", "worker 0:answer:"],
                             env=environ, stdout=subprocess.PIPE)
  with process:
    server, = read_pids(tmp_path, "server")
    process.send_signal(number)
    assert process.wait(60) == code
    assert sample_tasks.wait_until(lambda: all_gone([server]))


@pytest.mark.parametrize("number, heard", [
    (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGHUP, signal.SIGTERM)])
def test_a_signal_reaches_workers_first_and_ps_last(tmp_path, number, heard):
  names = ["ps 0", "worker 0", "worker 1", "evaluator 0"]
  tasks = ["%s:note_signal:%s,0.2" % (name, tmp_path / name) for name in names]
  # A worker leaves when the other one has heard as well: one after the other they never would.
  for number_of, other in ((1, 2), (2, 1)):
    tasks[number_of] += ",0,%s" % (tmp_path / names[other])
  with launcher(*tasks) as process:
    read_pids(tmp_path, *[name + ".pid" for name in names])
    os.killpg(process.pid, number)  # As a terminal does: the launcher's group, and no task.
    assert process.wait(60) == 128 + number
    last = process.stdout.read().splitlines()[-1]
  notes = {name: [float(word) for word in (tmp_path / name).read_text().split()] for name in names}
  assert all(note[0] == heard for note in notes.values())
  workers_left = max(notes["worker 0"][2], notes["worker 1"][2])
  assert workers_left <= min(notes["ps 0"][1], notes["evaluator 0"][1])
  assert re.match(r"tf1ps-local: ended by %s, \d+\.\d s$" % signal.Signals(number).name, last)


def test_a_chief_has_its_grace_to_save_after_a_signal(tmp_path):
  with launcher("save_limit=50", "worker 0:note_signal:%s,1" % (tmp_path / "chief"),
                workers_end_limit_after_signal=0.1) as process:
    read_pids(tmp_path, "chief.pid")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
  assert (tmp_path / "chief").exists()  # it was not killed before it had saved


def test_tasks_that_end_by_the_launchers_signal_did_not_fail(tmp_path):
  with launcher("ps 0:stay:%s" % (tmp_path / "ps"),
                "worker 0:stay:%s" % (tmp_path / "worker")) as process:
    pids = read_pids(tmp_path, "ps", "worker")
    process.send_signal(signal.SIGSTOP)  # It is to find the signal and the ends at once.
    assert sample_tasks.wait_until(lambda: sample_tasks.is_stopped(process.pid))
    for pid in pids:
      os.kill(pid, signal.SIGTERM)
    assert sample_tasks.wait_until(lambda: all_gone(pids))
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 143


def test_a_second_signal_kills_all_at_once(tmp_path):
  with launcher("ps 0:stay_deaf:%s" % (tmp_path / "ps"),
                "worker 0:stay_deaf:%s" % (tmp_path / "worker"),
                workers_end_limit_after_signal=1000) as process:
    pids = read_pids(tmp_path, "ps", "worker")
    process.send_signal(signal.SIGINT)
    while "ending the workers" not in process.stdout.readline():
      pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert process.stdout.read().splitlines()[0] == (
        "tf1ps-local: a second signal: killing the remaining tasks")
    assert all_gone(pids)


def test_an_output_whose_reader_is_at_rest_holds_nobody_up(tmp_path):
  with launcher("ps 0:stay:%s" % (tmp_path / "ps"),
                "worker 0:flood:%s" % (tmp_path / "worker")) as process:
    pids = read_pids(tmp_path, "ps", "worker")  # the worker has written all
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert all_gone(pids)


def test_two_launchers_do_not_disturb_each_other(tmp_path):
  with launcher("ps 0:wait_for:%s" % (tmp_path / "end"),
                "worker 0:stay:%s" % (tmp_path / "one")) as first:
    with launcher("ps 0:wait_for:%s" % (tmp_path / "end"),
                  "worker 0:wait_for:%s" % (tmp_path / "end")) as second:
      first_pid, = read_pids(tmp_path, "one")
      os.kill(first_pid, signal.SIGKILL)
      assert first.wait(60) == 1
      assert second.poll() is None
      (tmp_path / "end").write_text("")
      assert second.wait(60) == 0
