"""tf1ps-top: shows the status of a running job, drawn again every second until Ctrl-C.

It draws on its terminal or, with --web, on a page for a browser.
"""

from __future__ import annotations

import signal
import sys
import time

from absl import flags

from tf1ps.cli import app, status
from tf1ps.cli import links as links_lib
from tf1ps.compat import TIMING, signal_exit_code

FLAGS = flags.FLAGS
_SUMMARY = (
  "shows the status of a running job on a terminal, and draws it again every second. It finds the "
  "job, and shows it, as tf1ps-status does. Ctrl-C ends it.")


def run(argv) -> int:
  """Shows the status until Ctrl-C; returns the exit code."""
  return app.run("top", _SUMMARY, list(argv), _show, needs_program=False, takes_names=True)


def _show(names) -> int:
  if FLAGS.web is None and not sys.stdout.isatty():
    raise app.UsageError("the output is not a terminal: call tf1ps-status, which prints lines, or "
                         "give --web")
  addresses = status.find_addresses(names, "top")
  now = status.ask(addresses)
  from tf1ps.monitoring import StatusPage, draw_on_terminal

  def ask_again():
    time.sleep(TIMING.status_refresh)
    return status.ask(addresses)

  try:
    if FLAGS.web is None:
      draw_on_terminal(now, ask_again)
    else:
      page = StatusPage(now)
      page.serve(links_lib.inner_address(FLAGS.web))
      links_lib.open_address(FLAGS.web, "the page", "--web")
      print("tf1ps-top: http://%s/ shows the job, until Ctrl-C" % (FLAGS.web,), flush=True)
      page.follow(ask_again)
  except SystemExit as ended:
    if ended.code != signal_exit_code(signal.SIGINT):
      raise
  return 0
