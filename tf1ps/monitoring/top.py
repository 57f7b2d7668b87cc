"""The status of a job, drawn by rich: for tf1ps-top, and for its picture in the documents."""

from __future__ import annotations

import itertools
from typing import Callable

from tf1ps.monitoring import status_text
from tf1ps.monitoring.job_status import ABSENT, LOST, SILENT, STALLED, Status

_STYLES = {LOST: "bold red", "failed": "red", STALLED: "red", SILENT: "yellow", ABSENT: "yellow",
           "starting": "yellow", "done": "dim"}


def draw_on_terminal(status: Status, ask_again: Callable[[], Status]) -> None:
  """Draws the status, and then each status of `ask_again`, until `ask_again` raises an error."""
  from rich.live import Live

  with Live(render(status), screen=True, auto_refresh=False) as live:
    while True:
      live.update(render(ask_again()), refresh=True)


def render(status: Status):
  """Returns the status as an object that rich can print."""
  from rich.console import Group
  from rich.text import Text

  parts = [Text(status_text.asked_at(status))]
  for job in status.jobs:
    parts += [Text(""), Text(status_text.head_of(job), style="bold")]
    for section in status_text.sections(job):
      parts.append(Text(""))
      parts += [_table(section)] if section.columns else [Text(row[0]) for row in section.rows]
  return Group(*parts)


# A narrow terminal cuts the ends of only these columns.
_CUT = ("HOST", "WAITING", "AGE OF GRADIENTS")


def _table(section):
  from rich.table import Table
  from rich.text import Text

  def cell(text):
    return Text(text, no_wrap=True, overflow="ellipsis")

  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
  for column in section.columns:
    is_text = column in status_text.TEXT_COLUMNS
    table.add_column(cell(column), justify="left" if is_text else "right",
                     no_wrap=column not in _CUT)
  for row, state in itertools.zip_longest(section.rows, section.states):
    table.add_row(*map(cell, row), style=_STYLES.get(state))
  return table
