"""Runs a program whose output is a terminal, in a process of a test."""
from __future__ import annotations

import os
import pty
import sys
import threading

from tests import program_tasks


def run_on_terminal(name, argv):
  """Runs a program; what it draws is the output of the process."""
  ours, theirs = pty.openpty()
  output = os.dup(1)
  os.dup2(theirs, 1)
  sys.stdout = os.fdopen(1, "w", closefd=False)
  os.environ.update(TERM="xterm", COLUMNS="140", LINES="40")

  def carry():
    while True:
      os.write(output, os.read(ours, 4096))

  threading.Thread(target=carry, daemon=True).start()
  return program_tasks.run_program(name, argv, "/")
