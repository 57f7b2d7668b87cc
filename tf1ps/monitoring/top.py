"""The status of a job as rich draws it: for tf1ps-top, and for its picture in the documents."""

from __future__ import annotations

from typing import Callable

from tf1ps.monitoring import status_text
from tf1ps.monitoring.status import ABSENT, LOST, SILENT, STALLED, Status

_STYLES = {LOST: "bold red", "failed": "red", STALLED: "red", SILENT: "yellow", ABSENT: "yellow",
           "starting": "yellow", "done": "dim"}


def draw_on_terminal(status: Status, ask_again: Callable[[], Status]) -> None:
  """Draws the status, and each next one that `ask_again` returns, until that raises."""
  from rich.live import Live

  with Live(render(status), screen=True, auto_refresh=False) as live:
    while True:
      live.update(render(ask_again()), refresh=True)


def render(status: Status):
  """Returns the status as something that rich prints."""
  from rich.console import Group
  from rich.text import Text

  parts = [Text(status_text.asked_at(status))]
  for job in status.jobs:
    parts += [Text(""), Text(status_text.head_of(job), style="bold"), Text("")]
    rows = status_text.task_rows(job)
    parts.append(_table(status_text.TASK_COLUMNS, rows, [_STYLES.get(row[2]) for row in rows]))
    parts += [Text(line) for line in status_text.notes_of(job)]
    if job.ps:
      parts.append(Text(""))
      parts.append(_table(status_text.PS_COLUMNS, status_text.ps_rows(job)))
    parts += [Text(line) for line in status_text.load_notes(job)]
    if job.queues:
      parts.append(Text(""))
      parts.append(_table(status_text.QUEUE_COLUMNS, status_text.queue_rows(job)))
    parts += [Text(""), *(Text(line) for line in status_text.tail_of(job))]
  return Group(*parts)


# A narrow terminal cuts these columns at their ends, and no other.
_CUT = ("HOST", "WAITING", "AGE OF GRADIENTS")


def _table(columns, rows, styles=None):
  from rich.table import Table
  from rich.text import Text

  def cell(text):
    return Text(text, no_wrap=True, overflow="ellipsis")

  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
  texts = [column in ("TASK", "HOST", "STATE", "PS", "QUEUE", "WAITING") for column in columns]
  for column, is_text in zip(columns, texts):
    table.add_column(cell(column), justify="left" if is_text else "right",
                     no_wrap=column not in _CUT)
  for row, style in zip(rows, styles or [None] * len(rows)):
    table.add_row(*map(cell, row), style=style)
  return table
