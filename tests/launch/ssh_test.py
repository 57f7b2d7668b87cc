"""Jobs over a real sshd; without TensorFlow, but for the last one."""
from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests import docs_test, harness
from tests.cli import commands
from tests.launch import sshd
from tf1ps.launch import ssh as ssh_lib

pytestmark = [pytest.mark.any_tensorflow,
              pytest.mark.skipif(bool(sshd.MISSING), reason=str(sshd.MISSING))]
_CALL = "import sys; from tf1ps.cli import ssh; sys.exit(ssh.run(sys.argv[1:]))"
# Notes its process, and says when it got a signal; it ends with 0.
_STAY = """echo $$ > {job}-{index}
trap 'echo got INT; rm {job}-{index}; exit 130' INT
trap 'echo got TERM; exit 143' TERM
echo here
while :; do sleep 0.1; done"""
_DEAF = """trap '' INT TERM
echo $$ > {job}-{index}
echo here
sleep 300
sleep 300"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
  with sshd.running(tmp_path_factory.mktemp("sshd")) as made:
    yield made


@pytest.fixture
def start(server, tmp_path):
  """Starts tf1ps-ssh in a folder of the test, on which no task is left at the end."""
  started = []

  def begin(lines, *argv, path=server.path, **env):
    (tmp_path / "hosts.txt").write_text("\n".join(
      line.replace("HOST", server.host) for line in lines))
    with open(str(tmp_path / "output"), "wb") as output:
      started.append(subprocess.Popen(
        [sys.executable, "-c", _CALL, "hosts.txt", *argv],
        cwd=str(tmp_path), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        env=dict(os.environ, PATH="%s:%s" % (path, os.environ["PATH"]), **env)))
    return Launcher(started[-1], tmp_path)

  yield begin
  for process in started:
    process.kill()
    process.wait()
  harness.wait_until(lambda: not living(tmp_path), what="the end of the tasks")


class Launcher(object):
  """A running tf1ps-ssh."""

  def __init__(self, process, folder):
    self.process, self._folder = process, folder

  @property
  def lines(self):
    return (self._folder / "output").read_text().splitlines()

  def wait_for(self, *lines):
    harness.wait_until(lambda: set(lines) <= set(self.lines) or self.process.poll() is not None,
                       what=lambda: "%s in %s" % (lines, self.lines))
    assert set(lines) <= set(self.lines), self.lines

  def end(self):
    """Its exit code and its lines, when it has ended."""
    self.process.wait(harness.LIMIT)
    return self.process.returncode, self.lines


def living(folder):
  """The tasks that run, by the files in which they have noted themselves."""
  found = []
  for path in folder.glob("*-[0-9]"):
    try:
      os.kill(int(path.read_text() or 0) or 1 << 30, 0)
      found.append(path.name)
    except (OSError, OverflowError):
      pass
  return sorted(found)


def kill(pids):
  for pid in pids:
    with contextlib.suppress(ProcessLookupError):  # one may end with another
      os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_each_task_gets_its_environment_and_its_words(start, tmp_path):
  words = ["it's \"quoted\" $HOME `id` ; *", "{job}:{index}", "{ps_hosts} {worker_hosts} {other}"]
  script = 'import json, os, sys; print(json.dumps([os.environ["TF_CONFIG"], os.getcwd()] + ' \
           'sys.argv[1:]), flush=True)'
  launcher = start(["HOST ps  # the first one", "", "HOST worker*2 evaluator"], "--port=3000",
                   "--log_dir=logs", "--", sys.executable, "-c", script, *words)
  code, lines = launcher.end()
  assert code == 0, lines
  assert lines[-1].startswith("tf1ps-ssh: ok, 4 tasks, ")
  cluster = {"ps": ["127.0.0.1:3000"], "worker": ["127.0.0.1:3001", "127.0.0.1:3002"]}
  for job, index in (("ps", 0), ("worker", 0), ("worker", 1), ("evaluator", 0)):
    line, = [line for line in lines if line.startswith("[%s %d] " % (job, index))]
    config, folder, *got = json.loads(line.partition("] ")[2])
    assert json.loads(config) == {"cluster": cluster, "task": {"type": job, "index": index}}
    assert os.path.samefile(folder, str(tmp_path))
    assert got == [words[0], "%s:%d" % (job, index),
                   "127.0.0.1:3000 127.0.0.1:3001,127.0.0.1:3002 {other}"]
    assert line.partition("] ")[2] in (tmp_path / "logs" / ("%s-%d.log" % (job, index))).read_text()


@pytest.mark.slow
def test_the_first_failure_ends_all_and_comes_last(start, tmp_path):
  fails = "echo $$ > {job}-{index}; sleep 300 & " \
          "until [ -e go ]; do sleep 0.05; done; echo no more disk >&2; exit 3"
  launcher = start(["HOST ps worker*2"], "--", "bash", "-c",
                   "if [ {job}{index} = worker1 ]; then %s; fi; %s" % (fails, _STAY))
  launcher.wait_for("[ps 0] here", "[worker 0] here")
  assert living(tmp_path) == ["ps-0", "worker-0", "worker-1"] or harness.wait_until(
    lambda: len(living(tmp_path)) == 3)
  (tmp_path / "go").write_text("")
  code, lines = launcher.end()
  host = (tmp_path / "hosts.txt").read_text().split()[0]
  failure = "worker 1 on %s ended with exit code 3" % host
  assert code == 1, lines
  assert "tf1ps-ssh: %s: ending the others" % failure in lines
  assert lines.index("[worker 0] got TERM") < lines.index("[ps 0] got TERM")
  # Before it there may be lines of the login shell.
  assert any(line.startswith("tf1ps-ssh: last lines of worker 1 on %s, until " % host)
             for line in lines[-8:-2]), lines
  assert lines[-2] == "tf1ps-ssh:   no more disk"
  assert lines[-1].startswith("tf1ps-ssh: failed: %s, " % failure)
  assert living(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_first(start, tmp_path):
  launcher = start(["HOST ps worker"], "--", "bash", "-c", _STAY)
  launcher.wait_for("[ps 0] here", "[worker 0] here")
  launcher.process.send_signal(signal.SIGINT)
  code, lines = launcher.end()
  assert code == 130, lines
  assert lines.index("tf1ps-ssh: SIGINT: ending the workers, then the others") < lines.index(
    "[worker 0] got INT") < lines.index("[ps 0] got INT")
  assert lines[-1].startswith("tf1ps-ssh: ended by SIGINT, ") and living(tmp_path) == []


@pytest.mark.slow
def test_a_deaf_task_is_killed_and_at_once_after_a_second_signal(start, tmp_path):
  launcher = start(["HOST worker"], "--grace=60", "--", "bash", "-c", _DEAF)
  launcher.wait_for("[worker 0] here")
  launcher.process.send_signal(signal.SIGTERM)
  launcher.wait_for("tf1ps-ssh: SIGTERM: ending the workers, then the others")
  launcher.process.send_signal(signal.SIGTERM)
  code, lines = launcher.end()
  assert code == 143 and "tf1ps-ssh: a second signal: killing the remaining tasks" in lines
  assert living(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("script", [_STAY, _DEAF])
def test_no_task_outlives_a_launcher_that_is_killed(start, tmp_path, script):
  launcher = start(["HOST ps worker"], "--grace=1", "--", "bash", "-c", script)
  launcher.wait_for("[ps 0] here", "[worker 0] here")
  assert len(living(tmp_path)) == 2
  launcher.process.kill()
  harness.wait_until(lambda: not living(tmp_path), what="the end of the tasks")


@pytest.mark.slow
def test_a_lost_connection_ends_the_job_and_its_task(start, server, tmp_path):
  launcher = start(["HOST ps worker"], "--grace=1", "--", "bash", "-c", _DEAF)
  launcher.wait_for("[ps 0] here", "[worker 0] here")
  connections = server.connections()
  assert len(connections) == 2
  kill(connections[0])
  code, lines = launcher.end()
  assert code == 1 and "could not be reached by ssh, or the connection was lost (try `ssh " in (
    lines[-1]), lines
  harness.wait_until(lambda: not living(tmp_path), what="the end of the tasks")


@pytest.mark.slow
def test_a_connection_that_is_cut_without_an_end(start, server, tmp_path):
  """As by a cable: both sides notice only that nothing comes."""
  # The client notices it within 12 s in the place of 20, long before the script: after 30 s.
  launcher = start(["HOST ps worker"], "--grace=1", "--", "bash", "-c", _DEAF,
                   path=server.path_with("alive", "-o ServerAliveInterval=3"))
  launcher.wait_for("[ps 0] here", "[worker 0] here")
  stopped = server.connections()[0]
  for pid in stopped:
    harness.signal_process(pid, signal.SIGSTOP)
  try:
    code, lines = launcher.end()
    assert code == 1 and "or the connection was lost" in lines[-1], lines
    assert len(living(tmp_path)) == 1
    harness.wait_until(lambda: not living(tmp_path), what="the end of the task")
  finally:
    kill(stopped)


@pytest.mark.slow
def test_a_ps_that_never_ends_is_no_failure(start, tmp_path):
  launcher = start(["HOST ps worker"], "--grace=1", "--", "bash", "-c",
                   "[ {job} = worker ] && exit 0; %s" % _STAY)
  code, lines = launcher.end()
  assert code == 0, lines
  assert "tf1ps-ssh: the workers have ended with 0, and ps 0 still runs: ending it" in lines
  assert lines[-1].startswith("tf1ps-ssh: ok, 2 tasks, ") and living(tmp_path) == []


def test_without_beats_the_script_ends_the_command(tmp_path):
  """As after a cut cable, of which sshd does not hear."""
  # A busy machine may hold a beat up for longer than the silence that is borne; but not always.
  for number in range(5):
    folder = tmp_path / str(number)
    folder.mkdir()
    process = subprocess.Popen(
      ["bash", "-c", ssh_lib._REMOTE, "tf1ps-ssh", str(folder), "1", "1", "bash", "-c",
       _DEAF.replace("{job}-{index}", "worker-0")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
      assert process.stdout.readline() == b"here\n"
      lived = lives_by_beats(process, folder)
      assert process.wait(harness.LIMIT) == 128 + signal.SIGKILL and not living(folder)
    finally:
      with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
      process.stdout.close()
      process.kill()
      process.wait()
    if lived:
      break
  assert lived


def lives_by_beats(process, folder):
  """Whether a task lives while beats come, for longer than the silence of a second."""
  until = time.monotonic() + 1.6

  def beat():
    process.stdin.write(b".\n")
    process.stdin.flush()
    return time.monotonic() > until

  with contextlib.suppress(BrokenPipeError):
    harness.wait_until(beat)
  return living(folder) == ["worker-0"]


@pytest.mark.parametrize("lines, argv, text", [
  (["HOST worker"], [], "tf1ps-ssh: no command follows --: call it as tf1ps-ssh hosts.txt -- "),
  (["HOST worker"], ["b.txt", "--", "true"], "tf1ps-ssh: call it as tf1ps-ssh hosts.txt -- "),
  (["HOST master"], ["--", "true"], "tf1ps-ssh: hosts.txt:1: 'master' is not known: give ps, "),
  (["HOST ps"], ["--", "true"], "tf1ps-ssh: hosts.txt has no worker: add a line such as"),
  (["HOST worker"], ["--ssh=ssh -p 1", "--", "true"],
   "tf1ps-ssh: --ssh is not a flag any more: set ssh's options for the hosts in ~/.ssh/config")])
def test_mistakes_are_refused_before_anything_is_started(start, tmp_path, lines, argv, text):
  (tmp_path / "tensorflow").mkdir()
  (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('imported')")
  code, found = start(lines, *argv, PYTHONPATH="%s:%s" % (tmp_path, commands.ROOT)).end()
  assert (code, len(found)) == (1, 1) and found[0].startswith(text), found


def test_without_a_client(monkeypatch, tmp_path):
  (tmp_path / "hosts.txt").write_text("host worker")
  monkeypatch.setenv("PATH", str(tmp_path))
  done = subprocess.run([sys.executable, "-c", _CALL, str(tmp_path / "hosts.txt"), "--", "true"],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=harness.LIMIT)
  assert (done.returncode, done.stdout) == (
    1, b"tf1ps-ssh: PATH has no program ssh: install the ssh client\n")


def test_a_folder_that_is_not_on_the_host():
  done = subprocess.run(
    ["bash", "-c", ssh_lib._REMOTE, "tf1ps-ssh", "/not/there", "1", "1", "true"],
    stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=harness.LIMIT)
  assert done.returncode == 126 and b"/not/there: No such file or directory" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "Ctrl-C", "killed"])
def test_the_documented_job(start, tmp_path, fault):
  """The command of docs/deploying.md, with all of its hosts on this machine."""
  page = (commands.ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
  hosts = re.search(r"# hosts.txt\n(.*?)```", page, re.DOTALL).group(1)
  words = docs_test.of_program("docs/deploying.md", "tf1ps-ssh")[0]
  command = words[words.index("--") + 1:]
  assert command[0] == ".venv/bin/tf1ps-task" and words[0] == "hosts.txt"
  command = [word.replace("=examples/", "=%s/examples/" % commands.ROOT) for word in command[1:]
             if not word.startswith("--checkpoint_dir")]
  command += ["--checkpoint_dir=%s" % (tmp_path / "checkpoints"),
              "--epochs=%d" % (10000 if fault else 20)]
  first = min(int(address.rpartition(":")[2]) for address in harness.addresses(5))
  launcher = start(
    [re.sub(r"^ *node\d", "HOST", line) for line in hosts.splitlines()], "--port=%d" % first,
    "--", "env", "PYTHONPATH=%s" % commands.ROOT, sys.executable, "-m", "tests.launch.ssh_program",
    *command)
  if fault:
    harness.wait_until(lambda: any(
      line.startswith("[worker 0]") and "progress: step" in line for line in launcher.lines),
      what=lambda: "progress in %s" % launcher.lines)
    pid = None
    if fault == "Ctrl-C":
      launcher.process.send_signal(signal.SIGINT)
    else:
      pid, = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
              if is_task(pid, tmp_path, "worker", 1)]
      os.kill(pid, signal.SIGKILL)
  code, lines = launcher.end()
  ends = {job: [line for line in lines if line.startswith("[%s]" % job)][-1:] for job in (
    "ps 0", "worker 0", "worker 1", "evaluator 0")}
  assert code == {"": 0, "Ctrl-C": 130, "killed": 1}[fault], lines
  if not fault:
    assert all("exit code 0" in line for end in ends.values() for line in end), lines
    assert any(re.match(r"\[worker 0\] test accuracy 0\.9", line) for line in lines), lines
    assert lines[-1].startswith("tf1ps-ssh: ok, 4 tasks, ")
  elif fault == "Ctrl-C":
    assert all("exit code 130" in line for end in ends.values() for line in end), lines
    assert lines[-1].startswith("tf1ps-ssh: ended by SIGINT, ")
  else:
    assert re.match(r"tf1ps-ssh: failed: worker 1 on .* was ended by SIGKILL \(exit code 137\), ",
                    lines[-1]), lines
    assert "exit code 143" in ends["worker 0"][0], lines
  harness.wait_until(lambda: not [
    pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_task(pid, tmp_path)],
    what="the end of all tasks")


def is_task(pid, folder, job=None, index=None):
  """Whether a process is a task of the job with this folder."""
  try:
    with open("/proc/%d/cmdline" % pid, "rb") as file:
      if os.fsencode(str(folder)) not in file.read() or pid == os.getpid():
        return False
    with open("/proc/%d/environ" % pid, "rb") as file:
      found = dict(pair.partition(b"=")[::2] for pair in file.read().split(b"\0"))
    task = json.loads(found[b"TF_CONFIG"].decode())["task"]
    return job is None or task == {"type": job, "index": index}
  except (OSError, KeyError):
    return False
