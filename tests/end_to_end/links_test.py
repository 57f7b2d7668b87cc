"""Jobs with --tls_dir, from the command line to their end, and strangers that try to join them."""
from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests import harness, intruder_tasks, needs, program_tasks
from tests.cli.commands import LINE
from tf1ps.cli.links import find_folder
from tf1ps.launch import TLS_VARIABLE
from tf1ps.links import NamespaceError, check_namespaces, make_certificates
from tools.chaos.network import Network, NetworkError

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIGITS = "--program=" + str(ROOT / "examples" / "digits.py")
LIMIT = 2 * harness.LIMIT


@pytest.fixture(scope="module")
def tls_dir(tmp_path_factory):
  """The flag with a certificate for this machine."""
  try:
    check_namespaces()
  except NamespaceError as error:
    needs.skip("namespaces", error)
  return "--tls_dir=" + make_certificates(
    str(tmp_path_factory.mktemp("certs")), [["127.0.0.1"]], 1)[0]


@pytest.fixture
def start(start):
  """Starts tasks inside of their links, as a launcher does: only root may enter beside threads."""
  def start_one(name, function, *args, **env):
    folder = find_folder(args[1]) if function is program_tasks.run_program and (
      args[0] != "tf1ps-local") else ""
    inside = {TLS_VARIABLE: folder} if folder else {}
    return start(name, function, *args, **dict(inside, **env))

  return start_one


def sidecar_of(pid):
  """The process id of a task's sidecar."""
  with open("/proc/%s/task/%s/children" % (pid, pid)) as file:
    sidecar, = file.read().split()
  return int(sidecar)


def address_of(sidecar):
  """The address where a sidecar listens for the other tasks; the launcher has chosen the port."""
  port, = {port for port, state in harness.tcp_sockets(sidecar) if state == "0A"}
  return "127.0.0.1:%d" % port


def test_a_job_with_links_and_its_status(start, tls_dir, tmp_path):
  ps, worker = harness.addresses(2)
  metrics = harness.addresses(1)[0].rsplit(":", 1)[1]
  hosts = ["--ps_hosts=" + ps, "--worker_hosts=" + worker, tls_dir]
  tasks = [
    start("ps 0", program_tasks.run_program, "tf1ps-ps",
          [*hosts, "--metrics_port=" + metrics], tmp_path),
    start("worker 0", program_tasks.run_program, "tf1ps-worker", [
      *hosts, LINE, "--steps=100000", "--stop_when=" + str(tmp_path / "stop")], tmp_path)]
  tasks[1].wait_for("progress: step")

  def ask(limit, *more):
    return start("status", program_tasks.run_program, "tf1ps-status", [
      "--ps_hosts=" + ps, "--start_timeout=" + limit, *more], tmp_path)

  def is_refused():
    """A busy machine may end the limit before the ps has heard a byte."""
    assert ask("0.3").wait() == 1
    return "it does not speak TLS, as a task without --tls_dir" in tasks[0].output

  asked = ask("60", tls_dir)
  harness.wait_until(is_refused)
  asked.wait_for("worker 0 (chief)")
  assert asked.wait() == 0
  assert intruder_tasks.scrape(metrics).startswith("# HELP")
  (tmp_path / "stop").write_text("")
  assert [task.wait() for task in tasks] == [0, 0], [task.output for task in tasks]
  for task in tasks:
    task.wait_for("links over TLS; the certificate in ")
    assert "anyone who can connect" not in task.output
    assert "has no link" not in task.output, "it cannot call itself"


def test_ps_without_a_worker_take_their_own_links_for_no_client(start, tls_dir, tmp_path):
  ps, workers = harness.addresses(2), harness.addresses(1)
  tasks = [start("ps %d" % index, program_tasks.run_program, "tf1ps-ps", [
    "--ps_hosts=" + ",".join(ps), "--worker_hosts=" + workers[0], "--task_index=%d" % index,
    "--start_timeout=5", tls_dir], tmp_path) for index in (0, 1)]
  assert [task.wait(LIMIT) for task in tasks] == [1, 1]
  for task in tasks:
    assert "stays while a client is connected" not in task.output
  assert "no worker came within 5 s (--start_timeout)" in tasks[0].last_line


@pytest.mark.job
@pytest.mark.slow
def test_a_ps_and_a_sidecar_are_started_again_among_half_open_connections(start, tls_dir, tmp_path):
  launcher = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", [
    LINE, tls_dir, "--restart=on_failure", "--num_ps=1", "--num_workers=2", "--steps=1000000",
    "--step_seconds=0.02", "--checkpoint_dir=" + str(tmp_path / "model"),
    "--save_checkpoints=secs:1", "--stop_when=" + str(tmp_path / "stop")], tmp_path)
  launcher.wait_for("progress: step", LIMIT)
  pids = dict(re.findall(r"(\w+ \d) \(process (\d+)\)", launcher.output))
  ps = address_of(sidecar_of(pids["ps 0"]))
  start("crowd", intruder_tasks.hold_half_open, ps).wait_for("open")
  since = len(launcher.lines)
  sidecar = sidecar_of(pids["worker 1"])
  os.kill(sidecar, signal.SIGKILL)
  launcher.wait_for("worker 1: its sidecar (process %d) was killed by SIGKILL" % sidecar, LIMIT,
                    since)
  launcher.wait_for("tf1ps-local: worker 1 ended with exit code 1", LIMIT, since)
  launcher.wait_for("joined run", LIMIT, since)
  launcher.wait_for("progress: step", LIMIT, len(launcher.lines))
  assert not re.search("/job:ps/.*refused", launcher.output), launcher.output
  since = len(launcher.lines)
  os.kill(int(pids["ps 0"]), signal.SIGKILL)
  launcher.wait_for("ps 0 was killed by SIGKILL", LIMIT, since)
  launcher.wait_for("recovered: session", LIMIT, since)
  launcher.wait_for("progress: step", LIMIT, len(launcher.lines))
  (tmp_path / "stop").write_text("")
  assert launcher.wait(LIMIT) == 0, launcher.output
  assert "1 ps and 2 workers, 2 restarts, " in launcher.last_line


@pytest.mark.slow
def test_a_job_that_loses_a_sidecar_fails_and_says_so(start, tls_dir, tmp_path):
  launcher = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", [
    LINE, tls_dir, "--num_ps=1", "--num_workers=2", "--steps=1000000"], tmp_path)
  launcher.wait_for("progress: step", LIMIT)
  pid, = re.findall(r"ps 0 \(process (\d+)\)", launcher.output)
  sidecar = sidecar_of(pid)
  os.kill(sidecar, signal.SIGKILL)
  assert launcher.wait(LIMIT) == 1
  assert launcher.last_line.startswith("tf1ps-local: failed: ps 0 ended with exit code 1")
  assert any("ps 0: its sidecar (process %d) was killed by SIGKILL" % sidecar in line
             for line in launcher.lines)


@pytest.mark.slow
@pytest.mark.timeout(400)  # it takes a minute beside other tests
@pytest.mark.parametrize("is_closed", [False, True], ids=["plain", "tls"])
def test_an_intruder(start, tmp_path, is_closed):
  """It reads a variable of a plain job, and gets nothing of one with links, which trains on."""
  network = Network(["ps", "worker", "intruder"])
  try:
    network.__enter__()
  except NetworkError as error:
    needs.skip("namespaces", error)
  try:
    hosts = network.hosts
    folders = make_certificates(str(tmp_path / "job"), [[hosts["ps"]], [hosts["worker"]]], 1)
    stranger, = make_certificates(str(tmp_path / "other"), [[hosts["intruder"]]], 1)
    address = hosts["ps"] + ":2222"
    flags = ["--ps_hosts=" + address, "--worker_hosts=%s:2222" % hosts["worker"]]
    tls = [["--tls_dir=" + folder] if is_closed else [] for folder in folders]
    ps = start("ps", intruder_tasks.run_inside, network.namespace("ps"), "tf1ps-ps",
               flags + tls[0], tmp_path)
    worker = start("worker", intruder_tasks.run_inside, network.namespace("worker"),
                   "tf1ps-worker", [*flags, *tls[1], DIGITS, "--steps=12000",
                                    "--steps_per_execution=1"], tmp_path)
    worker.wait_for("progress: step", LIMIT)
    intruder = network.namespace("intruder")
    plain = start("plain", intruder_tasks.read_global_step, intruder, address,
                  *([] if is_closed else [None, harness.LIMIT]))
    if not is_closed:
      assert int(plain.wait_for("read").split()[1]) > 0
      return
    start("crowd", intruder_tasks.hold_half_open, address, intruder).wait_for("open")
    raw = start("raw", intruder_tasks.shake_hands, intruder, address, None)
    forged = start("forged", intruder_tasks.shake_hands, intruder, address, stranger)
    linked = start("linked", intruder_tasks.read_global_step, intruder, address, stranger)
    for task, text in ((plain, "nothing"), (raw, "nothing"), (forged, "nothing"),
                       (linked, "nothing")):
      task.wait_for(text, LIMIT)
      assert "read" not in task.output
    assert worker.is_running, "the job ended before the intruder was done"
    ps.wait_for("refuses a connection from %s: it has no certificate" % hosts["intruder"])
    ps.wait_for("refuses a connection from %s: its certificate is not signed by the authority" % (
      hosts["intruder"]))
    since = len(worker.lines)
    worker.wait_for("progress: step", LIMIT, since)
    assert worker.wait(2 * LIMIT) == 0 and ps.wait(LIMIT) == 0, worker.output
    accuracy, = re.findall(r"test accuracy ([\d.]+)", worker.output)
    assert float(accuracy) > 0.95
  finally:
    network.__exit__()


@pytest.mark.any_tensorflow
def test_where_no_namespace_is_permitted(tmp_path):
  folder, = make_certificates(str(tmp_path), [["10.0.0.1"]], 1)
  program = "ps=%s; exec %s bin/$0 --tls_dir=%s --ps_hosts=10.0.0.1:2222 $1" % (
    "x", sys.executable, folder)
  forbid = "echo 0 > /proc/sys/user/max_net_namespaces && " + program
  results = [subprocess.run(
    ["unshare", "-Ur", "sh", "-c", forbid, *words], cwd=str(ROOT), stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT, universal_newlines=True, timeout=60)
    for words in (("tf1ps_ps.py", "--worker_hosts=10.0.0.2:2223"), ("tf1ps.py status",))]
  if "unshare: " in results[0].stdout or "cannot create" in results[0].stdout:
    needs.skip("namespaces")
  assert [result.returncode for result in results] == [1, 1]
  refusal = ("--tls_dir needs a network namespace for the task, which this machine does not permit "
             "(the limit in /proc/sys/user is reached). Permit unprivileged user namespaces, "
             "or in a container the call unshare.")
  assert results[0].stdout == (
    "tf1ps-ps: %s Or leave --tls_dir out, and close the port by a firewall:\n"
    "  iptables -A INPUT -p tcp --dport 2222 -s 10.0.0.1,10.0.0.2 -j ACCEPT\n"
    "  iptables -A INPUT -p tcp --dport 2222 -j DROP\n"
    "  ip6tables -A INPUT -p tcp --dport 2222 -j DROP\n"
    "Then check it from a machine outside the job. This must find no server:\n"
    "  tf1ps-status --ps_hosts=10.0.0.1:2222 --start_timeout=5\n" % refusal)
  assert results[1].stdout == "tf1ps-status: %s\n" % refusal
