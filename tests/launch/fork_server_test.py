from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from tests.launch import sample_tasks
from tf1ps.launch import fork_server, fork_server_main
from tf1ps.launch.fork_server import LocalTask


def test_preloads_once_and_quietly(tmp_path, capfd, monkeypatch):
  (tmp_path / "loud_module.py").write_text(
      "import os\nprint('imported')\nos.write(2, b'noise')\n"
      "with open(%r, 'a') as notes: notes.write('once ')\n"
      "def leave(): return 6\n" % str(tmp_path / "notes"))
  monkeypatch.syspath_prepend(str(tmp_path))
  import loud_module
  capfd.readouterr()
  (tmp_path / "notes").unlink()
  with fork_server.ForkServer(["loud_module"]) as server:
    processes = [server.start_task(LocalTask("worker %d" % i, loud_module.leave)) for i in (0, 1)]
    assert [sample_tasks.wait_exit(server, process) for process in processes] == [6, 6]
    assert [sample_tasks.read_output(process) for process in processes] == [b"", b""]
    assert server.ready
    assert set(server.ended) == set(processes)
  assert (tmp_path / "notes").read_text() == "once "
  assert capfd.readouterr() == ("", "")
  with fork_server.ForkServer(["loud_module"], quiet=False) as server:
    assert sample_tasks.wait_until(lambda: server.take() or server.ready)
  assert capfd.readouterr() == ("imported\n", "noise")


def test_the_garbage_collector_passes_over_what_was_imported():
  with fork_server.ForkServer() as server:
    task = server.start_task(LocalTask("ps 0", sample_tasks.collector))
    assert sample_tasks.wait_exit(server, task) == 0
    assert sample_tasks.read_output(task) == b"True True\n"


def test_a_clock_step_does_not_end_the_wait_for_a_start(monkeypatch):
  clock = itertools.count(time.time(), 3600.0)
  monkeypatch.setattr(time, "time", lambda: next(clock))
  with fork_server.ForkServer() as server:
    task = server.start_task(LocalTask("ps 0", sample_tasks.answer, (7,)))
    assert sample_tasks.wait_exit(server, task) == 7


def test_an_import_that_fails_shows_why(tmp_path, capfd, monkeypatch):
  (tmp_path / "broken_module.py").write_text("print('before')\nimport no_such_module_at_all\n")
  monkeypatch.syspath_prepend(str(tmp_path))
  with fork_server.ForkServer(["broken_module"]) as server:
    with pytest.raises(fork_server.PreloadError) as raised:
      server.start_task(LocalTask("ps 0", sample_tasks.answer))
  lines = str(raised.value).splitlines()
  assert lines[0] == "before"
  assert lines[-1] == "ModuleNotFoundError: No module named 'no_such_module_at_all'"
  assert capfd.readouterr() == ("", "")


def test_a_string_is_no_list_of_modules():
  with pytest.raises(TypeError, match="got the string 'numpy'"):
    fork_server.ForkServer("numpy")


def test_what_a_task_has_started_ends_with_it(tmp_path):
  with fork_server.ForkServer() as server:
    process = server.start_task(
        LocalTask("worker 0", sample_tasks.start_child, (str(tmp_path / "pids"), True)))
    assert sample_tasks.wait_exit(server, process) == 0
    # The child held the pipe: only its death ends the output.
    assert sample_tasks.read_output(process) == b"child started\n"
    child = int(sample_tasks.read_when_there(tmp_path / "pids").split()[1])
    assert sample_tasks.wait_until(lambda: not sample_tasks.lives(child))


@pytest.mark.parametrize("stopped", [False, True])
def test_a_signal_reaches_the_whole_group(tmp_path, stopped):
  with fork_server.ForkServer() as server:
    process = server.start_task(
        LocalTask("worker 0", sample_tasks.start_child, (str(tmp_path / "pids"),)))
    pids = [int(pid) for pid in sample_tasks.read_when_there(tmp_path / "pids").split()]
    if stopped:
      os.kill(process.pid, signal.SIGSTOP)
      assert sample_tasks.wait_until(lambda: sample_tasks.is_stopped(process.pid))
    server.signal_task(process, signal.SIGTERM)
    assert sample_tasks.wait_exit(server, process) == -signal.SIGTERM
    server.signal_task(process, signal.SIGTERM)  # Too late, and no error.
    assert sample_tasks.wait_until(lambda: not any(map(sample_tasks.lives, pids)))
    os.close(process.output)


@pytest.mark.parametrize("stop_server", [False, True])
def test_close_leaves_nothing(tmp_path, set_timing, stop_server):
  # Then it would kill the server, and no test lasts so long.
  set_timing(fork_server, fork_server_end_limit=1000.0)
  with fork_server.ForkServer() as server:
    processes = [
        server.start_task(LocalTask("worker %d" % i, function, (str(tmp_path / str(i)),)))
        for i, function in enumerate([sample_tasks.stay_deaf, sample_tasks.start_child])]
    pids = [server.pid]
    for index in (0, 1):
      pids += [int(pid) for pid in sample_tasks.read_when_there(tmp_path / str(index)).split()]
    os.kill(pids[1], signal.SIGSTOP)
    if stop_server:
      os.kill(server.pid, signal.SIGSTOP)
  assert sample_tasks.wait_until(lambda: not any(map(sample_tasks.lives, pids)))
  for process in processes:
    os.close(process.output)
  server.close()


def test_a_signal_to_everybody_does_not_end_the_server():
  with fork_server.ForkServer() as server:
    assert sample_tasks.wait_until(lambda: server.take() or server.ready)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
      os.kill(server.pid, number)
    process = server.start_task(LocalTask("ps 0", sample_tasks.answer, (8,)))
    assert sample_tasks.wait_exit(server, process) == 8
    os.close(process.output)


def test_a_server_that_is_killed_takes_its_tasks_along(tmp_path):
  with fork_server.ForkServer() as server:
    process = server.start_task(
        LocalTask("worker 0", sample_tasks.start_child, (str(tmp_path / "pids"),)))
    pids = [int(pid) for pid in sample_tasks.read_when_there(tmp_path / "pids").split()]
    os.kill(server.pid, signal.SIGKILL)
    assert sample_tasks.wait_until(lambda: not sample_tasks.lives(pids[0]))  # The kernel's part.
    with pytest.raises(fork_server.ForkServerLost, match="process %d" % server.pid):
      sample_tasks.wait_exit(server, process)
    assert sample_tasks.wait_until(lambda: not any(map(sample_tasks.lives, pids)))
    os.close(process.output)


def test_tasks_end_with_the_pipe_of_the_launcher_alone(tmp_path):
  with fork_server.ForkServer() as server:
    process = server.start_task(
        LocalTask("worker 0", sample_tasks.start_child, (str(tmp_path / "pids"),)))
    pids = [int(pid) for pid in sample_tasks.read_when_there(tmp_path / "pids").split()]
    os.kill(server.pid, signal.SIGSTOP)
    with open(os.devnull) as null:
      os.dup2(null.fileno(), server._launcher_pipe)  # Closes it, as the end of the launcher would.
    assert sample_tasks.wait_until(lambda: not any(map(sample_tasks.lives, pids)))
    os.close(process.output)


PROGRAM = """
import sys
print("main runs", flush=True)
from tests.launch import sample_tasks
from tf1ps.launch import fork_server
from tf1ps.launch.fork_server import LocalTask

def mine():
  pass

def main():
  with fork_server.ForkServer() as server:
    process = server.start_task(LocalTask("ps 0", sample_tasks.answer, (4,)))
    assert sample_tasks.wait_exit(server, process) == 4
    assert sample_tasks.read_output(process) == b""
    try:
      server.start_task(LocalTask("ps 0", mine))
    except ValueError as error:
      print(error)

CALL
"""
GUARD = "if __name__ == '__main__': main()"


@pytest.mark.parametrize("how", ["file", "file without guard", "module", "console script"])
def test_the_launchers_main_module_runs_once(how, tmp_path):
  call = "main()" if how == "file without guard" else "" if how == "console script" else GUARD
  (tmp_path / "launch_program.py").write_text(PROGRAM.replace("CALL", call))
  script = tmp_path / "launch-program"  # As pip writes it: no suffix, imports the module.
  script.write_text("import sys\nfrom launch_program import main\nsys.exit(main())\n")
  command = {"module": ["-m", "launch_program"], "console script": [str(script)]}.get(
      how, [str(tmp_path / "launch_program.py")])
  output = subprocess.check_output(
      [sys.executable] + command, cwd=str(tmp_path), stderr=subprocess.STDOUT,
      universal_newlines=True).splitlines()
  assert output[0] == "main runs"
  if how == "console script":
    assert output[1:] == []
  else:
    refusal, = output[1:]
    assert refusal.startswith(
      "the function of ps 0, mine, is defined in the script that Python runs")


def test_function_and_arguments_are_pickled():
  task = LocalTask("ps 0", sample_tasks.answer, (7,))
  assert pickle.loads(fork_server.pickle_task(task)) == (sample_tasks.answer, (7,))
  assert task.env == {}


@pytest.mark.parametrize("task, message", [
    (LocalTask("ps 0", lambda: 0), "ps 0 cannot be sent to a process of its own: .*lambda"),
    (LocalTask("worker 1", sample_tasks.answer, (threading.Lock(),)),
     "worker 1 cannot be sent to a process of its own: .*lock"),
    (LocalTask("ps 0", sample_tasks.answer, env={"CUDA_VISIBLE_DEVICES": -1}),
     "environment of ps 0 has -1 for 'CUDA_VISIBLE_DEVICES'")])
def test_what_no_other_process_could_run_is_refused(task, message):
  with pytest.raises(ValueError, match=message):
    fork_server.pickle_task(task)


def test_imports_need_no_temporary_directory(monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", "/no/such/directory")
  ours, theirs = multiprocessing.Pipe()
  with ours, theirs:
    fork_server_main._import_modules(theirs, ["json"], quiet=True)
    assert ours.recv() == ("ready",)
