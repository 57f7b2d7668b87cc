"""Runs a benchmark as its user does, with all its processes in a group that ends with the test."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT = 300.0  # seconds: several of them may start a dozen processes at the same time


def run(name, *arguments):
  """Runs `python -m NAME` in the checkout to its end; returns what it has printed."""
  process = subprocess.Popen(
    [sys.executable, "-m", name, *arguments], cwd=str(ROOT),
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
    start_new_session=True)
  try:
    out, err = process.communicate(timeout=LIMIT)
  finally:
    try:
      os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
      pass  # nothing is left of it
    process.wait()
  assert process.returncode == 0, err
  return out
