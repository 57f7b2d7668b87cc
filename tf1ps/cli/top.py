"""tf1ps-top: the status of a running job, drawn again every second on a terminal, until Ctrl-C."""

from __future__ import annotations

import importlib.util
import signal
import sys
import time

from tf1ps.cli import app, status
from tf1ps.compat import TIMING, signal_exit_code

_SUMMARY = (
  "shows the status of a running job on a terminal, as tf1ps-status prints it, and draws it again "
  "every second. It needs the address of one ps, and the package rich. Ctrl-C ends it.")


def run(argv) -> int:
  """Shows the status until Ctrl-C; returns the exit code."""
  return app.run("top", _SUMMARY, list(argv), _show, needs_program=False, takes_names=True)


def _show(names) -> int:
  if importlib.util.find_spec("rich") is None:
    raise app.UsageError('the package rich is missing: pip install "tf1ps[top]", or call '
                         "tf1ps-status, which does without it")
  if not sys.stdout.isatty():
    raise app.UsageError("the output is no terminal: call tf1ps-status, which prints lines")
  now = status.ask(names, "tf1ps-top")
  from tf1ps.monitoring import draw_on_terminal

  def ask_again():
    time.sleep(TIMING.status_refresh)
    return status.ask(names, "tf1ps-top")

  try:
    draw_on_terminal(now, ask_again)
  except SystemExit as ended:
    if ended.code != signal_exit_code(signal.SIGINT):
      raise
  return 0


def main() -> None:
  """The console script."""
  app.leave(run(sys.argv[1:]))
