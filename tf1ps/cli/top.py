"""tf1ps-top: shows the status of a running job, drawn again every second until Ctrl-C.

It draws on its terminal or, given http://[HOST:]PORT, on a page for a browser.
"""

from __future__ import annotations

import signal
import sys
import time

from tf1ps.cli import app, status
from tf1ps.cli import links as links_lib
from tf1ps.compat import TIMING, signal_exit_code
from tf1ps.monitoring import parse_metrics_address

_SUMMARY = (
  "shows the status of a running job on a terminal, and draws it again every second. It finds the "
  "job, and shows it, as tf1ps-status does. `tf1ps-top http://8080` shows it as a page for a "
  "browser instead, at port 8080 of 127.0.0.1; http://HOST:PORT is another address. Ctrl-C ends "
  "it.")
_PAGE = "http://"


def run(argv) -> int:
  """Shows the status until Ctrl-C; returns the exit code."""
  return app.run("top", _SUMMARY, list(argv), _show, needs_program=False, takes_names=True)


def _show(arguments) -> int:
  address = _page_address([text for text in arguments if text.startswith(_PAGE)])
  names = [text for text in arguments if not text.startswith(_PAGE)]
  if address is None and not sys.stdout.isatty():
    raise app.UsageError("the output is not a terminal: call tf1ps-status, which prints lines, or "
                         "give http://8080 to see a page at this port")
  addresses = status.find_addresses(names, "top")
  now = status.ask(addresses)
  from tf1ps.monitoring import StatusPage, draw_on_terminal

  def ask_again():
    time.sleep(TIMING.status_refresh)
    return status.ask(addresses)

  try:
    if address is None:
      draw_on_terminal(now, ask_again)
    else:
      page = StatusPage(now)
      page.serve(links_lib.inner_address(address))
      links_lib.open_address(address, "the page", "http://HOST:PORT")
      print("tf1ps-top: http://%s/ shows the job, until Ctrl-C" % (address,), flush=True)
      page.follow(ask_again)
  except SystemExit as ended:
    if ended.code != signal_exit_code(signal.SIGINT):
      raise
  return 0


def _page_address(given):
  """Returns the address in the arguments http://[HOST:]PORT; None: no page is wanted."""
  if len(given) > 1:
    raise app.UsageError("%s and %s: one page shows the job: leave one out" % tuple(given[:2]))
  if not given:
    return None
  try:
    return parse_metrics_address(given[0][len(_PAGE):].rstrip("/"))
  except ValueError as error:
    raise app.UsageError("%s %s behind http://" % (given[0], error)) from error
