"""Runs an example's commands in forks of a process that has imported TensorFlow.

What a user's shell starts imports it first, which takes ten times as long as most examples do. The
rest is as in checking.py: processes, ports, folders, what is printed and how they end.
"""
from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import runpy
import shlex
import sys

from tests.examples import checking, docstrings

LIMIT = 120.0  # seconds for one command


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
  sys.argv = list(words)
  sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
  runpy.run_path(words[0], run_name="__main__")


def check(example, forks, folder, find_free_ports) -> str:
  """Runs an example's commands; returns what is wrong, or ""."""
  problems = []
  for step in checking.replace(example.steps, str(folder), find_free_ports):
    tasks = []
    run = functools.partial(_run, forks=forks, folder=folder, tasks=tasks)
    with concurrent.futures.ThreadPoolExecutor(len(step)) as shells:
      try:
        problems += list(shells.map(run, step))
      finally:
        for task in tasks:
          task.kill()
  return "\n".join(filter(None, problems))


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
