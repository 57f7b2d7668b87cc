"""The processes of a benchmark: started, asked with a line of input for a line of output, ended."""
from __future__ import annotations

import os
import subprocess
import sys


def start(path, arguments):
  """Starts a benchmark's file again, as one of the benchmark's processes."""
  return subprocess.Popen(
    [sys.executable, os.path.abspath(path), *arguments], stdin=subprocess.PIPE,
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)


def ask(processes, line):
  """Sends a line to all processes, which act on it at the same time; returns their answers."""
  for process in processes:
    process.stdin.write(line + "\n")
    process.stdin.flush()
  return hear(processes)


def hear(processes):
  """Waits for a line of each process; returns the lines."""
  answers = []
  for process in processes:
    answers.append(process.stdout.readline().strip())
    if not answers[-1]:
      raise RuntimeError("a process of this benchmark has ended with %s" % process.wait())
  return answers


def end(processes):
  """Ends processes, the last first; the first is the ps, without which the others would hang."""
  for process in reversed(processes):
    process.kill()
    process.wait()
