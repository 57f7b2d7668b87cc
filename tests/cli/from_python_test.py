from __future__ import annotations

import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types

import pytest
from absl import flags

import tf1ps
from tests import harness
from tests.cli import commands
from tests.launch import sample_tasks
from tf1ps.cli import LocalJobError, command_line, from_python, results

LINE = str(commands.ROOT / "tests" / "programs" / "line.py")
# A program that needs no TensorFlow until its functions are called, and starts itself.
STARTS_ITSELF = """
import tf1ps
def input_fn(mode, shard): pass
def model_fn(features, labels, mode): pass
if __name__ == "__main__":
  tf1ps.main()
"""
# Stands for a launcher that waits; a deaf one does not end by SIGTERM.
LAUNCHER = """
import os, signal
if %r: signal.signal(signal.SIGTERM, lambda *unused: os.write(1, b"deaf\\n"))
print("process", os.getpid(), flush=True)
while True: signal.pause()
"""
# Has the launcher of a call wait instead of running a job.
CALLER = """
import os, sys
from tf1ps.cli import from_python
code = ("from tf1ps.cli import local; import os, signal\\n"
        "local.run = lambda *unused: (print('process', os.getpid(), flush=True), signal.pause())\\n"
        "local.main_for_caller(%d, '')" % os.getpid())
from_python._run([sys.executable, "-c", code], None)
"""
HOSTS = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2"]


class Output(io.StringIO):
  """A text file that raises an error when a line with some text is written, once each."""

  def __init__(self, **errors):
    super().__init__()
    self._errors = errors

  def write(self, text):
    super().write(text)
    for found in [each for each in self._errors if each in text]:
      raise self._errors.pop(found)


def process_in(text):
  """The process that a text names, as LAUNCHER prints it."""
  return int(re.search(r"process (\d+)", text).group(1))


@pytest.mark.parametrize("options, text", [
    (dict(epoch=3), "run_local: --epoch is not a flag; did you mean --epochs? (see tf1ps-local "
     "--help)"),
    (dict(pack_bytes=0), "run_local: --pack_bytes is not a flag any more: set TF1PS_PACK_BYTES "
     "in the environment of all tasks (see tf1ps-local --help)"),
    (dict(job_name="ps"), "run_local: --job_name is not a flag (see tf1ps-local --help)"),
    (dict(epochs=0), "flag --epochs=0: must be above 0 (see tf1ps-local --help)"),
    (dict(epochs=True), "flag --epochs=true: must be a whole number (see tf1ps-local --help)"),
    (dict(num_workers=None), "the job has no end: give --steps, --epochs or --examples"),
    (dict(steps=1, num_ps=0), "--num_ps=0: between-graph replication needs at least one ps"),
    (dict(steps=1, batch_size=[8, 4], sync_replicas=True),
     "--batch_size=8,4 with a number for each worker applies to asynchronous updates: it needs "
     "--replication=between_graph, the default, and no --sync_replicas"),
    (dict(steps=1, output="a.txt"), "run_local: output must be an open text file, got 'a.txt'")])
def test_what_cannot_work_is_refused_with_the_flags_own_message(options, text):
  with pytest.raises(ValueError) as raised:
    tf1ps.run_local(LINE, **dict(dict(output=io.StringIO()), **options))
  assert isinstance(raised.value, tf1ps.Error) and str(raised.value) == text


@pytest.mark.parametrize("program, text", [
    (3, "program must be a module, its name, or the path of a .py file, got 3"),
    (types.ModuleType("made"), "the module made has no file: write the program into a file, "
     "because each task imports it")])
def test_what_is_no_program_is_refused(program, text):
  with pytest.raises(tf1ps.Error) as raised:
    tf1ps.run_local(program, steps=1)
  assert str(raised.value) == "run_local: " + text


def test_a_module_is_named_by_its_file_or_by_its_package(tmp_path):
  assert from_python._name_of(commands) == "tests.cli.commands"
  alone = types.ModuleType("alone")
  alone.__file__ = os.path.join("some", "alone.py")
  assert from_python._name_of(alone) == os.path.abspath("some/alone.py")
  assert from_python._name_of(tmp_path / "p.py") == str(tmp_path / "p.py")


def test_a_call_imports_nothing_heavy_and_leaves_the_process_as_it_was():
  program = (
    "import json, signal, sys, threading, tf1ps\n"
    "def handlers(): return [repr(signal.getsignal(n)) for n in (1, 2, 15, 17)]\n"
    "before = handlers()\n"
    "try: tf1ps.run_local(%r, epochs='many')\n"
    "except tf1ps.Error as error: pass\n"
    "heavy = [n for n in ('tensorflow', 'numpy', 'grpc', 'absl') if n in sys.modules]\n"
    "print(json.dumps([heavy, handlers() == before, threading.active_count()]))\n" % LINE)
  done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
  assert json.loads(done.stdout.decode().splitlines()[-1]) == [[], True, 1]


@pytest.mark.parametrize("content, error, text", [
    ({"refusal": "--x is wrong"}, ValueError, "--x is wrong"),
    ({"failure": "ps 0 was killed"}, RuntimeError, "ps 0 was killed"),
    ({}, LocalJobError, "the job has left no result: its launcher was killed"),
    (None, LocalJobError, "the job has left no result: its launcher was killed")])
def test_a_job_without_a_result(tmp_path, content, error, text):
  if content is not None:
    (tmp_path / "result.json").write_text(json.dumps(content))
  with pytest.raises(error, match=text) as raised:
    results.read(str(tmp_path / "result.json"))
  assert isinstance(raised.value, tf1ps.Error)


def test_a_result_that_cannot_be_written_ends_no_job(tmp_path, caplog):
  result = results.JobResult(5, {"loss": 0.5}, None, {"worker 0": 7}, 1.5)
  results.write_result(str(tmp_path / "no" / "result.json"), result)
  assert "the caller of this job gets no result: " in caplog.text
  path = str(tmp_path / "result.json")
  results.write_result(path, result)
  results.complete_result(path, "logs")
  assert results.read(path) == result._replace(log_dir="logs")


def test_output_that_fails_is_dropped_and_the_job_goes_on(caplog):
  output = Output(one=OSError("disk full"))
  from_python._run([sys.executable, "-c", "print('one'); print('two'); print('three')"], output)
  assert output.getvalue() == "one\n"  # nothing was written after it
  assert "the job goes on, but its output cannot be shown any more: disk full" in caplog.text


def test_output_goes_to_stdout_by_default(capsys):
  code = "import sys; print('Grüße', flush=True); sys.exit('and errors')"
  from_python._run([sys.executable, "-c", code], None)
  assert capsys.readouterr().out == "Grüße\nand errors\n"


@pytest.mark.parametrize("is_deaf", [False, True])
def test_an_exception_ends_the_launcher_and_a_second_one_kills_it(is_deaf):
  output = Output(process=KeyboardInterrupt("first"), deaf=KeyboardInterrupt("second"))
  with pytest.raises(KeyboardInterrupt, match="first"):
    from_python._run([sys.executable, "-c", LAUNCHER % is_deaf], output)
  assert ("deaf" in output.getvalue()) == is_deaf
  assert not sample_tasks.lives(process_in(output.getvalue()))


def test_the_launcher_ends_with_its_caller():
  caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE,
                            universal_newlines=True)
  with caller:
    launcher = process_in(caller.stdout.readline())
    caller.kill()
    harness.wait_until(lambda: not sample_tasks.lives(launcher), what="the end of the launcher")


@pytest.mark.slow
def test_a_job_that_fails_names_the_task():
  output = io.StringIO()
  with pytest.raises(LocalJobError) as raised:
    tf1ps.run_local(LINE, steps=5, num_workers=1, program_flags={"fail_in": "model"},
                    output=output)
  first, second, *last_lines = str(raised.value).splitlines()
  assert re.match(r"worker 0 ended with exit code 1 \(.*/worker-0\.log\): "
                  r"line\.py:\d+ in model_fn: ValueError: no model today$", first)
  assert second == "worker 0: Traceback (most recent call last):"
  assert "in model_fn" in last_lines[0]
  assert "no model today" not in output.getvalue()  # the exception says it


@pytest.mark.slow
def test_a_job_from_a_thread_that_is_not_the_main_one(tmp_path):
  line = types.ModuleType("line")
  line.__file__ = LINE
  output, results_found, began = io.StringIO(), [], time.monotonic()
  handlers = [signal.getsignal(number) for number in (1, 2, 15)]
  thread = threading.Thread(target=lambda: results_found.append(tf1ps.run_local(
    line, output=output, num_ps=2, num_workers=2, steps=40, learning_rate=0.1, batch_size=10,
    sync_replicas=True, checkpoint_dir=tmp_path / "model", log_dir=tmp_path / "logs")))
  thread.start()
  thread.join()
  result, = results_found
  assert (result.global_step, result.checkpoint) == (40, str(tmp_path / "model" / "model.ckpt-40"))
  assert result.examples == {"worker 0": 400, "worker 1": 400}
  assert sorted(result.metrics) == ["error", "loss"] and 0 < result.metrics["loss"] < 1
  assert result.log_dir == str(tmp_path / "logs")
  assert 0 < result.seconds <= time.monotonic() - began
  assert "[worker 0] test error %.4f" % result.metrics["error"] in output.getvalue()
  assert [signal.getsignal(number) for number in (1, 2, 15)] == handlers
  assert "num_workers" not in flags.FLAGS


@pytest.mark.slow
def test_an_interrupt_ends_all_tasks_and_the_chief_saves(tmp_path):
  output = Output(progress=KeyboardInterrupt())
  with pytest.raises(KeyboardInterrupt):
    tf1ps.run_local(LINE, output=output, steps=1000000, checkpoint_dir=tmp_path / "model",
                    program_flags={"step_seconds": 0.01})
  pids = [int(pid) for pid in re.findall(r"\(process (\d+)\)", output.getvalue())]
  assert len(pids) == 3 and not any(map(sample_tasks.lives, pids))
  assert re.search(r"tf1ps-local: ended by SIGTERM; logs in \S+, \d+", output.getvalue())
  saved = [int(path.stem.rpartition("-")[2]) for path in tmp_path.glob("model/model.ckpt-*.index")]
  assert max(saved) > 0


@pytest.mark.slow
@pytest.mark.parametrize("argv, text", [
    (["--num_ps=0", "--steps=1"],
     "tf1ps-local: --num_ps=0: between-graph replication needs at least one ps"),
    (["--job_name=ps", "--task_index=7", "--steps=5", *HOSTS],
     "tf1ps-ps: --task_index: 7 is out of range: the only ps is 0"),
    (["--job_name", "evaluator", "--start_timeout=0"],
     "tf1ps-evaluator: flag --start_timeout=0.0: must be above 0"),
    (["--job_name=chief", "--steps=0"], "tf1ps-worker: flag --steps=0: must be above 0")])
def test_a_program_starts_itself(tmp_path, argv, text):
  (tmp_path / "itself.py").write_text(STARTS_ITSELF)
  done = subprocess.run([sys.executable, "itself.py", *argv], cwd=str(tmp_path),
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
  assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith(text)


def test_the_environment_may_name_the_task(monkeypatch):
  for task, program in (({"type": "ps", "index": 0}, "ps"), ({"type": "chief"}, "worker"),
                        ({"type": "evaluator"}, "evaluator"), ({}, "local")):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"task": task}))
    assert from_python._program_of(["--steps=5"]) == program
  assert from_python._program_of(["--steps=5", "--job_name", "ps"]) == "ps"
  assert from_python._program_of(["--steps=5", "--cluster_resolver=slurm"]) == "task"
  monkeypatch.setenv("TF_CONFIG", "no JSON")
  assert from_python._program_of([]) == "local"


def test_a_task_ignores_the_flags_of_other_tasks():
  given = ["--steps", "5", "--sync_replicas", "--batch_size=8", "--mine",
           "--epochs", "3", "-learning_rate", "-1", "--container=c", "--num_ps=2", "--nothing",
           "word"]
  assert command_line.without_others(given, "ps") == [
    "--mine", "--container=c", "--num_ps=2", "--nothing", "word"]
  assert command_line.without_others(given, "evaluator") == [
    "--batch_size=8", "--mine", "--container=c", "--num_ps=2", "--nothing", "word"]
  for program in "worker", "local":
    assert command_line.without_others(given, program) == given
  given = ["--keep_best", "loss:3", "--checkpoint=latest", "--steps=5"]
  assert command_line.without_others(given, "worker") == ["--steps=5"]
  assert command_line.without_others(given, "evaluator") == given[:3]


def test_main_is_for_the_file_that_python_runs(tmp_path, monkeypatch):
  (tmp_path / "unguarded.py").write_text("import tf1ps\ntf1ps.main()\n")
  monkeypatch.syspath_prepend(str(tmp_path))
  with pytest.raises(tf1ps.Error, match='while unguarded was imported: put it below `if __name__'):
    importlib.import_module("unguarded")
  with pytest.raises(tf1ps.Error, match="for the file of a program .* call tf1ps.run_local"):
    exec("import tf1ps; tf1ps.main()", {"__name__": "__main__"})
