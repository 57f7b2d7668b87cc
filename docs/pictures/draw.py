"""Draws the pictures of the documents: a text file here becomes an SVG file of the same name.

    python docs/pictures/draw.py

A text file has a title, and a line for each moment, from top to bottom. Events of one moment stand
in one line, with a semicolon between them:

    tasks: ps 0, worker 0          the columns, from left to right
    worker 0: takes a batch        a box
    ps 0 -> worker 0: variables    an arrow
    end ps 0: is killed            a box, and the column ends
    begin ps 0: starts again       a box, and the column goes on

The SVG has a background of its own, so that a page of any colour can show it.
"""

from __future__ import annotations

import pathlib
import re
import sys
import textwrap
from typing import List, NamedTuple

import drawsvg

FOLDER = pathlib.Path(__file__).resolve().parent

_COLUMN, _BOX, _LINE, _GAP, _EDGE = 270, 220, 18, 16, 20  # pixels
_PER_LETTER = 7.6  # pixels of a letter in a text of _FONT pixels, at most
_FONT = 14
_INK, _PAPER, _LIFE, _ENDED = "#1f2328", "#ffffff", "#8c959f", "#eaeef2"
_KINDS = {"ps": "#ddf4ff", "worker": "#dafbe1"}  # a task's colour by its job
_OTHER = "#fff8c5"
_EVENT = re.compile(r"(?:(begin|end) )?([^:]+?)(?: -> ([^:]+))?: (.*)")


class Event(NamedTuple):
  """A box at one task, or an arrow from a task to another one."""

  task: str
  target: str  # "": a box
  text: str
  kind: str  # "begin", "end" or ""


class Picture(NamedTuple):
  """A parsed text file."""

  title: str
  tasks: List[str]
  moments: List[List[Event]]


def parse(text: str) -> Picture:
  """Parses a text file; raises ValueError for a line that is none of the five."""
  title, columns, *lines = [line for line in text.splitlines() if line.strip()]
  if not columns.startswith("tasks: "):
    raise ValueError("the second line is 'tasks: ...', got %r" % columns)
  tasks = columns[len("tasks: "):].split(", ")
  moments = []
  for line in lines:
    moments.append([])
    for part in line.split("; "):
      match = _EVENT.fullmatch(part.strip())
      if not match or {match.group(2), match.group(3) or tasks[0]} - set(tasks):
        raise ValueError("an event of the tasks %s, got %r" % (", ".join(tasks), part))
      kind, task, target, words = match.groups("")
      moments[-1].append(Event(task, target, words, kind))
  return Picture(title, tasks, moments)


def draw(picture: Picture) -> str:
  """Returns the SVG of a picture."""
  middle = {task: int(_EDGE + _COLUMN * (index + 0.5)) for index, task in enumerate(picture.tasks)}
  top = 2 * _EDGE + _LINE + 2 * _GAP
  heights = [max(_height(event, middle) for event in moment) for moment in picture.moments]
  width = 2 * _EDGE + _COLUMN * len(middle)
  height = top + sum(heights) + _GAP * (len(heights) + 1) + _EDGE
  drawing = drawsvg.Drawing(width, height, id_prefix="")
  drawing.append(drawsvg.Title(picture.title))
  drawing.append(drawsvg.Rectangle(
    0.5, 0.5, width - 1, height - 1, rx=8, fill=_PAPER, stroke=_LIFE))
  for task, x in middle.items():
    _box(drawing, [task], x, _EDGE, _LINE + 2 * _GAP, _color(task), bold=True)
  lives = {task: top - _EDGE for task in middle}  # where each column's line begins; None: ended
  shapes, y = [], top
  for moment, extent in zip(picture.moments, heights):
    y += _GAP
    for event in moment:
      if event.kind == "begin":
        lives[event.task] = y
      if event.kind == "end":
        _life(drawing, middle[event.task], lives.pop(event.task), y)
      shapes.append((event, y, extent))
    y += extent
  for task, begin in lives.items():
    _life(drawing, middle[task], begin, height - _EDGE)
  for event, y, extent in shapes:
    (_arrow if event.target else _event_box)(drawing, event, middle, y, extent)
  return drawing.as_svg() + "\n"


def _color(task):
  return _KINDS.get(task.split()[0], _OTHER)


def _lines(event, middle):
  room = _BOX if not event.target else abs(middle[event.target] - middle[event.task]) - 30
  return textwrap.wrap(event.text, int(room / _PER_LETTER))


def _height(event, middle):
  return _LINE * len(_lines(event, middle)) + (_GAP if not event.target else _GAP // 2)


def _life(drawing, x, begin, end):
  drawing.append(drawsvg.Line(x, begin, x, end, stroke=_LIFE, stroke_dasharray="4 4"))


def _event_box(drawing, event, middle, y, extent):
  lines = _lines(event, middle)
  height = _LINE * len(lines) + _GAP
  color = _ENDED if event.kind == "end" else _color(event.task)
  _box(drawing, lines, middle[event.task], y + (extent - height) // 2, height, color)


def _box(drawing, lines, x, y, height, color, bold=False):
  drawing.append(drawsvg.Rectangle(
    x - _BOX // 2 - 8, y, _BOX + 16, height, rx=5, fill=color, stroke=_INK))
  _text(drawing, lines, x, y + (height - _LINE * len(lines)) // 2, bold)


def _arrow(drawing, event, middle, y, extent):
  begin, end = middle[event.task], middle[event.target]
  lines, foot = _lines(event, middle), y + extent - 4
  height = _LINE * len(lines)
  widest = int(max(len(line) for line in lines) * _PER_LETTER)
  x = (begin + end) // 2
  drawing.append(drawsvg.Rectangle(
    x - widest // 2, foot - height - 4, widest, height, fill=_PAPER))
  _text(drawing, lines, x, foot - height - 4)
  step = 1 if end > begin else -1
  drawing.append(drawsvg.Line(begin, foot, end - 9 * step, foot, stroke=_INK, stroke_width=1.5))
  drawing.append(drawsvg.Lines(
    end, foot, end - 10 * step, foot - 5, end - 10 * step, foot + 5, close=True, fill=_INK))


def _text(drawing, lines, x, y, bold=False):
  for index, line in enumerate(lines):
    drawing.append(drawsvg.Text(
      line, _FONT, x, y + _LINE * index + 13, text_anchor="middle", fill=_INK,
      font_family="Helvetica, Arial, sans-serif", font_weight="bold" if bold else "normal"))


def main() -> int:
  """Writes the SVG file of each text file."""
  for path in sorted(FOLDER.glob("*.txt")):
    svg = draw(parse(path.read_text(encoding="utf-8")))
    path.with_suffix(".svg").write_text(svg, encoding="utf-8")
  return 0


if __name__ == "__main__":
  sys.exit(main())
