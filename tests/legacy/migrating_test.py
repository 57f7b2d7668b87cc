"""The page "migrating", step by step, with processes on both TensorFlows."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from benchmarks import legacy_programs
from tests import docs_test, harness
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task
from tf1ps.compat.timing import START_VARIABLE
from tf1ps.state import control, heartbeat

PAGE = "docs/migrating.md"
LIMIT = 120.0
RUN = ["-m", "tf1ps", "run"]
# The environments of the Makefile: .venv and .venv-legacy, which begin with the same name.
_HERE = sys.prefix[:-len("-legacy")] if sys.prefix.endswith("-legacy") else sys.prefix
PYTHONS = {"today": os.path.join(_HERE, "bin", "python"),
           "legacy": os.path.join(_HERE + "-legacy", "bin", "python")}
# Up to nine programs start in a test, each for half a minute on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(360), pytest.mark.skipif(
  not all(os.path.exists(python) for python in PYTHONS.values()),
  reason="needs the environments of `make test` and of `make test-legacy`")]


class Process(object):
  """A command of the page, as a process of its own."""

  def __init__(self, command, folder):
    self._path = os.path.join(str(folder), "output-%d" % len(os.listdir(str(folder))))
    with open(self._path, "w") as file:
      self._process = subprocess.Popen(
        command, cwd=str(folder), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        env=dict(os.environ, PYTHONUNBUFFERED="1"))

  @property
  def output(self):
    with open(self._path, errors="replace") as file:
      return file.read()

  def wait(self, limit=LIMIT):
    try:
      return self._process.wait(limit)
    except subprocess.TimeoutExpired as error:
      raise AssertionError("it has not ended:\n" + self.output) from error

  def wait_for(self, pattern):
    """Waits for output; returns the first group of the pattern."""
    def look():
      found = re.search(pattern, self.output)
      assert found or self._process.poll() is None, self.output
      return found
    return harness.wait_until(look, LIMIT, lambda: self.output).group(1)

  def stop(self):
    self._process.terminate()
    return self.wait()

  def end(self):
    self._process.kill()
    self._process.wait()


@pytest.fixture
def processes():
  """Starts commands; ends what is left of them."""
  started = []

  def start_one(environment, words, folder):
    started.append(Process([PYTHONS[environment], *words], folder))
    return started[-1]

  yield start_one
  for process in started:
    process.end()


@pytest.fixture
def page(processes, tmp_path):
  """Starts the page's three commands in an environment, with its program in a folder."""
  (tmp_path / "trainer.py").write_text(docs_test.block_with(PAGE, '"""Digits, by'))
  (tmp_path / "MNIST_data").mkdir()
  legacy_programs.write_mnist(str(tmp_path / "MNIST_data"))
  hosts = dict(zip(("a:2222", "b:2222", "c:2222"), harness.addresses(3)))

  def start(environment, program="tf1ps-run"):
    """All tasks; the ps is the first."""
    commands = [words for words in docs_test.of_program(PAGE, environment + "/bin/" + program)
                if "--print" not in words]
    assert len(commands) == 3
    started = []
    for words in commands:
      for host, address in hosts.items():
        words = [word.replace(host, address) for word in words]
      started.append(processes(environment, RUN * (program == "tf1ps-run") + words, tmp_path))
    return started

  return start


def end_of_updates(tasks, folder, begin):
  """Checks that all have ended and each worker took part in all updates; returns their number."""
  codes = [task.wait() for task in tasks]
  said = "\n---\n".join(task.output for task in tasks)
  assert codes == [0, 0, 0], said
  last = legacy_programs.last_saved(folder)
  for task in tasks[1:]:
    assert "begins at step %d\n" % begin in task.output, said
    assert " %d local steps" % (last - begin) in task.output, said
  return last


def test_the_steps_of_the_page(page, tmp_path):
  model = str(tmp_path / "model")
  first = end_of_updates(page("legacy"), model, 0)
  second = end_of_updates(page("today"), model, first)
  source = (tmp_path / "trainer.py").read_text()
  (tmp_path / "trainer.py").write_text(legacy_programs.with_our_imports(source))
  for line in docs_test.block_with(PAGE, "import tf1ps.v1 as tf").splitlines():
    assert line in (tmp_path / "trainer.py").read_text()
  tasks = page("today", "python")
  end_of_updates(tasks, model, second)
  assert float(re.search(r"test accuracy (\S+)", tasks[1].output).group(1)) > 0.9


def test_print_shows_what_is_replaced_and_runs_nothing(processes, tmp_path):
  (tmp_path / "trainer.py").write_text(docs_test.block_with(PAGE, '"""Digits, by'))
  words, = [words for words in docs_test.of_program(PAGE, "today/bin/tf1ps-run")
            if "--print" in words]
  task = processes("today", RUN + words, tmp_path)
  assert task.wait() == 0, task.output
  for module in ("tf1ps.v1 as tf", "tf1ps.v1.examples.tutorials.mnist import input_data"):
    assert module in task.output, task.output
  assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["supervisor_async", "plain_session"])
def test_a_worker_on_todays_tensorflow_refuses_an_old_ps_at_once(
    processes, tmp_path, monkeypatch, name):
  program = legacy_programs.PROGRAMS[name]
  arguments = legacy_programs.arguments(program, str(tmp_path))
  path = legacy_programs.path_of(program)
  ps = processes("legacy", [*RUN, path, *arguments["ps 0"]], tmp_path)
  address, = [one[11:] for one in arguments["ps 0"] if one.startswith("--ps_hosts=")]
  task = Task("ps", 0, address)
  harness.wait_until(lambda: probe.probe_task(task).is_up, LIMIT, lambda: ps.output)
  monkeypatch.setenv(START_VARIABLE, "1000")  # it waited so long for a session, and no test does
  worker = processes("today", [*RUN, path, *arguments["worker 0"]], tmp_path)
  assert worker.wait() == 1
  assert re.search(r"/job:ps/task:0 at \S+ runs TensorFlow 1\.15\.\d, which cannot serve "
                   r"/job:worker/task:0 on TensorFlow 2", worker.output), worker.output
  # The ps hears of it, and does not wait for its first worker any more.
  table = control.ControlTable("grpc://" + task.address, task, task)
  member, = [m for m in heartbeat.members_of(table.read(), None) if m.job == "worker"]
  table.close()
  assert member.state == heartbeat.MEMBER_FAILED and member.reason.startswith("VersionError: ")


def test_ps_first_then_the_workers_one_by_one(processes, tmp_path):
  program = legacy_programs.PROGRAMS["supervisor_async"]
  arguments = legacy_programs.arguments(program, str(tmp_path))

  def start(environment, name, steps):
    return processes(environment, [
      *RUN, legacy_programs.path_of(program), *arguments[name], "--train_steps=%d" % steps,
      "--save_secs=1"], tmp_path)

  tasks = {name: start("legacy", name, 10 ** 9) for name in arguments}
  for name in ("worker 0", "worker 1"):
    tasks[name].wait_for("(training step) 20 done")
  assert tasks["ps 0"].stop() == 128 + signal.SIGTERM
  tasks["ps 0"] = start("today", "ps 0", 0)
  tasks["worker 1"].wait_for("(recovered): session 2")
  last = 2000 + int(tasks["worker 0"].wait_for(r"(?s)recovered: session 2.*global step: (\d+)"))
  for name in ("worker 1", "worker 0"):
    assert tasks[name].stop() == 128 + signal.SIGTERM
    seen = int(tasks[name].wait_for(r"local steps, global step (\d+)"))
    tasks[name] = start("today", name, last)
    assert int(tasks[name].wait_for(r"global step:? (\d+)")) > seen  # the weights stay on the ps
  for task in tasks.values():
    assert task.wait() == 0, task.output
  for name in ("worker 0", "worker 1"):
    assert int(tasks[name].wait_for(r"local steps, global step (\d+)")) >= last
