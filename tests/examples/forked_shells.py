"""Runs an example's commands in forks of a process that has imported TensorFlow.

What a user's shell starts imports it first, which takes ten times as long as most examples do. The
rest is as in checking.py: processes, ports, folders, what is printed and how they end.
"""
from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import os
import pathlib
import re
import runpy
import shlex
import sys

from tests.examples import checking, docstrings

LIMIT = 120.0  # seconds for one command
_UNBUFFERED = 2  # _IONBF of stdio.h


def can_run(example) -> bool:
  """Whether all of its commands start a Python file."""
  return all(command.split()[0] == "python" for step in example.steps for shell in step
             for command in shell.commands)


def run_file(words, errors) -> None:
  """What a fork does: runs a Python file as `python FILE ARGUMENT...` does.

  Args:
    words: the file and its arguments.
    errors: the file for standard error.
  """
  os.chdir(str(docstrings.ROOT))
  os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
  libc = ctypes.CDLL(None)  # as PYTHONUNBUFFERED does: TensorFlow prints by the C library
  libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _UNBUFFERED, ctypes.c_size_t(0))
  sys.argv = list(words)
  sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
  runpy.run_path(words[0], run_name="__main__")


def check(example, forks, folder, find_free_ports) -> str:
  """Runs an example's commands; returns what is wrong, or "".

  An example that starts all of its tasks by itself says on standard error which commands do the
  same by hand. Such commands are compared with those of the docstring, and not run once more.
  """
  problems = []
  for step in checking.replace(example.steps, str(folder), find_free_ports):
    announced = _announced(folder)
    if announced and step[0].number:
      by_hand = _alike("%s$ %s" % (shell.number, " ".join(shlex.split(shell.commands[0])))
                       for shell in step)
      if by_hand not in announced:
        problems.append("by hand: - in the docstring, + started\n" + docstrings.difference(
          by_hand, announced[0]))
      continue
    tasks = []
    run = functools.partial(_run, forks=forks, folder=folder, tasks=tasks)
    with concurrent.futures.ThreadPoolExecutor(len(step)) as shells:
      try:
        problems += list(shells.map(run, step))
      finally:
        for task in tasks:
          task.kill()
  return "\n".join(filter(None, problems))


def _announced(folder):
  """Returns the lists of commands that the examples run so far have started by themselves."""
  found = []
  for path in sorted(pathlib.Path(str(folder)).glob("errors *")):
    for line in path.read_text(errors="replace").splitlines():
      if line.startswith("1$ python "):
        found.append([])
      if found and re.match(r"\d+\$ python ", line):
        found[-1].append(line)
  return [_alike(lines) for lines in found]


def _alike(commands):
  """Returns commands with the same ports and folders as others that differ in nothing else."""
  ports = {}
  text = re.sub(r"(?<=127\.0\.0\.1:)\d+", lambda found: str(ports.setdefault(
    found.group(), len(ports))), "\n".join(commands))
  return re.sub(r"(?<= )/\S+", "FOLDER", text).splitlines()


def _run(shell, forks, folder, tasks) -> str:
  printed = []
  for number, command in enumerate(shell.commands):
    errors = pathlib.Path(str(folder)) / ("errors %s %d %d" % (shell.number, number, len(tasks)))
    task = forks.start(command, run_file, shlex.split(command)[1:], str(errors))
    tasks.append(task)
    code = task.wait(LIMIT)
    printed += [line.rstrip() for line in task.lines]
    if code:
      return "%s\n  exit code %d\n%s\n%s" % (
        command, code, "\n".join(printed), errors.read_text()[-3000:])
  docstrings.drop_blank_end(printed)
  if docstrings.matches(shell.expected, printed):
    return ""
  return "%s$ %s\n%s" % (
    shell.number, "; ".join(shell.commands), docstrings.difference(shell.expected, printed))
