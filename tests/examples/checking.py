"""Runs the commands of an example's docstring, and compares their output with the docstring.

1. Each `127.0.0.1:PORT` gets a free port, and each `/tmp/NAME` a place in a fresh folder.
2. Each shell starts as a process of its own. In it `python` is this Python, and programs of bin/
   are `tf1ps-ps` and so on. The check waits for all shells until the time is over or one fails.
3. The check ends each process that still carries the mark of this run in its environment.
4. Each shell must have ended with 0, printed the expected lines, and left no process.

docstrings.py says how commands are written.
"""
from __future__ import annotations

import functools
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from typing import Dict, NamedTuple

from tf1ps.cli.console import PROGRAMS
from tf1ps.launch import find_free_ports

from .docstrings import ROOT, Example, Shell, difference, drop_blank_end, matches

LIMIT = 150.0  # seconds for one example; on a busy machine an import alone has taken 15
GRACE = 5.0  # seconds for the other shells where one has failed
GONE = 60.0  # seconds for processes to be gone
MARK = "TF1PS_EXAMPLE"
_PAUSE = threading.Event()  # never set: it waits between two looks
# What a TensorFlow imported in this process, or a scheduler, may have left: not for the children.
STALE = ("TF_CONFIG", "TF2_BEHAVIOR", "TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION",
         "ENABLE_RUNTIME_UPTIME_TELEMETRY", "HDF5_PLUGIN_PATH")


class Result(NamedTuple):
  """The outcome of a check."""
  seconds: float
  problem: str  # "" if all is well; else lines that say what is wrong
  skipped: str  # the TensorFlow that the example needs, if this is another one; else ""


def check(example: Example, limit=LIMIT, root=ROOT, choose_ports=find_free_ports) -> Result:
  """Runs an example's commands.

  Args:
    example: from `docstrings.read`.
    limit: seconds for all of them together.
    root: the folder to run them in.
    choose_ports: callable, number of ports to a list of free ones.
  """
  start = time.monotonic()
  if example.only_on and example.only_on != running_on():
    return Result(0.0, "", example.only_on)
  problem = ""
  with tempfile.TemporaryDirectory() as folder:
    for step in replace(example.steps, folder, choose_ports):
      problem = _run_step(step, folder, start + limit, root)
      if problem:
        break
  return Result(time.monotonic() - start, problem, "")


@functools.lru_cache(maxsize=None)
def running_on() -> str:
  """Returns "1.15" or "2.x"; asks in another process, since an import changes the environment."""
  version = subprocess.run(
    [sys.executable, "-c", "import tensorflow as tf; print(tf.version.VERSION)"], check=True,
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True).stdout
  return release(version)


def release(version: str) -> str:
  """Returns what `Only on:` calls a version of TensorFlow: "1.15" or "2.x"."""
  return "1.15" if version.startswith("1.15") else version.split(".")[0] + ".x"


def replace(steps, folder, choose_ports):
  """Returns the steps with free ports for those named, and paths below `folder` for /tmp/NAME.

  Args:
    steps: of an `Example`.
    folder: a path.
    choose_ports: callable, number of ports to a list of free ones.
  """
  address = re.compile(r"\b127\.0\.0\.1:([1-9]\d*)")
  text = "\n".join(line for step in steps for shell in step
                   for line in shell.commands + shell.expected)
  named = sorted(set(address.findall(text)))
  free = dict(zip(named, choose_ports(len(named))))

  def place(line):
    line = re.sub(r"(?<![\w.])/tmp/(?=\w)", lambda _: folder + "/", line)
    return address.sub(lambda found: "127.0.0.1:%d" % free[found.group(1)], line)

  return [[Shell(shell.number, [place(line) for line in shell.commands],
                 [place(line) for line in shell.expected]) for shell in step] for step in steps]


def _run_step(shells, folder, until, root):
  """Runs shells together; returns what is wrong, or ""."""
  environment = dict(_environment(folder, root), **{MARK: uuid.uuid4().hex})
  with tempfile.TemporaryDirectory() as logs:
    started = []  # (process, the file with its output, the file with its errors)
    try:
      for index, shell in enumerate(shells):
        files = [os.path.join(logs, "%s.%d" % (name, index)) for name in ("out", "err")]
        with open(files[0], "wb") as out, open(files[1], "wb") as err:
          started.append((subprocess.Popen(
            ["/bin/sh", "-e", "-c", "\n".join(shell.commands)], cwd=str(root), env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True), *files))
      processes = [process for process, _, _ in started]
      _wait(processes, until)
      codes = [process.poll() for process in processes]
      gone = time.monotonic() + GONE
      while None not in codes and _marked(environment[MARK]) and time.monotonic() < gone:
        _PAUSE.wait(0.05)  # what it has started may be on its way out
    finally:
      left = _end(environment[MARK])
      for process, _, _ in started:
        if process.poll() is None:  # where there is no /proc
          os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    problems = [_judge(shell, code, *[_lines(file) for file in files])
                for shell, code, (_, *files) in zip(shells, codes, started)]
  if None not in codes and left:
    problems.append("left running: " + ", ".join(left.values()))
  return "\n".join(filter(None, problems))


def _environment(folder, root) -> Dict[str, str]:
  """Returns the children's environment, in which `python` is this one, and bin/ is found."""
  programs = pathlib.Path(folder) / "programs on the PATH"
  if not programs.exists():
    programs.mkdir()
    command = shlex.quote(str(root / "bin" / "tf1ps.py"))
    commands = {"python": "", "tf1ps": command}
    commands.update(("tf1ps-" + name, "%s %s" % (command, name)) for name in PROGRAMS)
    for name, command in commands.items():
      (programs / name).write_text(
        '#!/bin/sh\nexec %s %s "$@"\n' % (shlex.quote(sys.executable), command))
      (programs / name).chmod(0o755)
  environment = {name: value for name, value in os.environ.items() if name not in STALE}
  environment["PATH"] = "%s%s%s" % (programs, os.pathsep, os.environ.get("PATH", os.defpath))
  environment["PYTHONUNBUFFERED"] = "1"  # what a process that must be ended has printed is seen
  return environment


def _wait(processes, until):
  """Waits until all have ended, or the time has come; not much longer once one has failed."""
  failed = False
  while time.monotonic() < until:
    codes = [process.poll() for process in processes]
    if None not in codes:
      return
    if any(codes) and not failed:
      until, failed = min(until, time.monotonic() + GRACE), True
    _PAUSE.wait(0.02)


def _marked(mark) -> Dict[int, str]:
  """Returns {process id: command} of the live processes with this mark in their environment."""
  wanted = "{}={}".format(MARK, mark).encode()
  found = {}
  for path in pathlib.Path("/proc").glob("[0-9]*"):
    try:
      if wanted in (path / "environ").read_bytes().split(b"\0"):
        command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        found[int(path.name)] = command.strip()
    except OSError:  # it has ended, or is somebody else's
      continue
  return found


def _end(mark) -> Dict[int, str]:
  """Ends the live processes with this mark; returns them."""
  found = left = _marked(mark)
  until = time.monotonic() + GONE
  while left and time.monotonic() < until:
    for process in left:
      try:
        os.kill(process, signal.SIGKILL)
      except ProcessLookupError:
        pass
    _PAUSE.wait(0.02)
    left = _marked(mark)
  return found


def _lines(file):
  with open(file, encoding="utf-8", errors="replace") as text:
    lines = [line.rstrip() for line in text]
  drop_blank_end(lines)
  return lines


def _judge(shell, code, printed, errors):
  """Returns what is wrong with one shell, or ""."""
  wrong = []
  if code is None:
    wrong.append("  had not ended, and was killed")
  elif code:
    wrong.append("  exit code %d" % code)
  if not matches(shell.expected, printed):
    wrong.append(difference(shell.expected, printed))
  if not wrong:
    return ""
  tail = ["  on standard error, last:"] + ["    " + line for line in errors[-15:]]
  commands = [shell.number + "$ " + command for command in shell.commands]
  return "\n".join(commands + wrong + (tail if errors else []))
