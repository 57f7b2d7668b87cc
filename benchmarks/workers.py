"""The processes of a benchmark: started, asked with a line of input for a line of output, ended."""
from __future__ import annotations

import os
import subprocess
import sys


def start(path, arguments):
  """Starts a benchmark's file once more, as one of its processes."""
  return subprocess.Popen(
    [sys.executable, os.path.abspath(path), *arguments], stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)


def ask(processes, line):
  """Has each of these do what a line says, all at the same time; returns what each answers."""
  for process in processes:
    process.stdin.write(line + "\n")
    process.stdin.flush()
  return hear(processes)


def hear(processes):
  """Waits for a line of each of these; returns them."""
  answers = []
  for process in processes:
    answers.append(process.stdout.readline().strip())
    if not answers[-1]:
      raise RuntimeError("a process of this benchmark has ended with %s" % process.wait())
  return answers


def end(processes):
  """Ends processes, the last one first: the first is the ps, without which others would hang."""
  for process in reversed(processes):
    process.kill()
    process.wait()
