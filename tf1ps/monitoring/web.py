"""The status of a job as a page in a browser, for `tf1ps-top http://PORT`: its tables, and curves.

1. `StatusPage` takes a status per second, and keeps the losses and rates of each job.
2. `/` is a frame, which loads nothing from other sites. Its script asks for `/status` once per
   second and shows the returned text, which Python has made and escaped.
3. When no ps answers any longer, the page says so and keeps the last status.
"""

from __future__ import annotations

import base64
import hashlib
import html
import itertools
import math
import threading
import time
from typing import Callable, Dict, List, Optional, Tuple

from tf1ps.monitoring import status_text
from tf1ps.monitoring.job_status import JobStatus, Status
from tf1ps.monitoring.metrics_address import MetricsAddress
from tf1ps.monitoring.metrics_server import make_http_server

_POINTS = 1000  # the most points of a curve; if it has more, every other point is removed
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 600, 190, 52, 22  # of a curve, in its own units

_SCRIPT = """
const main = document.querySelector("main");
async function draw() {
  try {
    const answer = await fetch("status");
    const text = await answer.text();
    if (!answer.ok) throw text;
    if (getSelection().isCollapsed) main.innerHTML = text;
    document.body.className = "";
  } catch (error) {
    document.body.className = "left";
  }
  setTimeout(draw, 1000);
}
setTimeout(draw, 1000);
"""
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #656d76; --line: #d8dee4;
  --card: #ffffff; --page: #f6f8fa; --curve: #0969da; --bad: #cf222e; --wait: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #8d96a0; --line: #30363d;
  --card: #161b22; --page: #0d1117; --curve: #4493f8; --bad: #f85149; --wait: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 84rem; background: var(--page);
  color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.2rem; margin: 0 .8rem 0 0; }
h2 { font-size: 1rem; margin: 1.2rem 0 .6rem; overflow-wrap: anywhere; }
header { margin-bottom: .6rem; display: flex; align-items: baseline; flex-wrap: wrap;
  color: var(--soft); }
header h1 { color: var(--ink); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .8rem 1rem; margin: 0 0 .8rem; overflow-x: auto; }
.tiles, .curves { display: flex; flex-wrap: wrap; gap: .8rem; margin: 0 0 .8rem; }
.tiles > div, .curves > div { flex: 1 1 8rem; margin: 0; }
.curves > div { flex-basis: 24rem; }
.tiles b { display: block; font-size: 1.5rem; font-weight: 600; overflow-wrap: anywhere; }
.tiles span, .curves span, th { color: var(--soft); font-size: .8rem; font-weight: 500; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1rem .25rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
tr:last-child td { border-bottom: 0; }
.text { text-align: left; }
p { margin: 0; overflow-wrap: anywhere; }
.lost td, .failed td, .stalled td, .alarm, .bad { color: var(--bad); }
.silent td, .absent td, .starting td { color: var(--wait); }
.done td { color: var(--soft); }
.alarm { border-color: var(--bad); }
#left { display: none; }
.left #left { display: block; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); }
.curve { fill: none; stroke: var(--curve); stroke-width: 2; stroke-linejoin: round; }
.dot { fill: var(--curve); }
"""
_FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>tf1ps</title>
<link rel="icon" href="data:,">
<style>%s</style>
<noscript><meta http-equiv="refresh" content="2"></noscript>
</head>
<body>
<p id="left" class="card alarm">tf1ps-top does not answer any more. This is its last status.</p>
<main>
%s
</main>
<script>%s</script>
</body>
</html>
"""
_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode("utf-8")).digest()).decode("ascii")
_HEADERS = [
  ("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store"),
  ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
  ("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src data:; "
   "style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'; "
   "frame-ancestors 'none'" % _HASH)]

_Points = List[Tuple[int, Optional[float], float]]  # global step, mean loss, steps per second


class StatusPage:
  """The page of a job, or of all jobs on its ps; a WSGI application."""

  def __init__(self, status: Status):
    self._lock = threading.Lock()
    self._status = status
    self._problem = ""
    self._points: Dict[Tuple[str, str], _Points] = {}
    self.add(status)

  def add(self, status: Status) -> None:
    """Takes the next status."""
    with self._lock:
      self._status, self._problem = status, ""
      for job in status.jobs:
        points = self._points.setdefault((job.container, job.run), [])
        if job.global_step is not None and job.steps_per_second:
          while points and points[-1][0] >= job.global_step:  # the job went back
            points.pop()
          points.append((job.global_step, _loss(job), job.steps_per_second))
        if len(points) > _POINTS:
          del points[1:-1:2]

  def fail(self, problem: str) -> None:
    """Keeps the last status, because no ps answers."""
    with self._lock:
      self._problem = problem

  def serve(self, address: MetricsAddress) -> None:
    """Serves the page, in threads. Raises MetricsError if the address is taken."""
    server = make_http_server(address, self, "the page", "http://HOST:PORT")
    threading.Thread(target=server.serve_forever, daemon=True, name="tf1ps: page").start()

  def follow(self, ask_again: Callable[[], Status]) -> None:
    """Shows each status of `ask_again`, and its RuntimeErrors, until it raises another error."""
    while True:
      try:
        self.add(ask_again())
      except RuntimeError as error:  # a StatusError, or an error of a session when a ps ends
        self.fail(str(error))

  def text(self) -> str:
    """Returns the changing part of the page, as HTML."""
    with self._lock:
      age = time.time() - self._status.time
      parts = ["<header><h1>tf1ps</h1>%s%s</header>" % (
        _escape(status_text.asked_at(self._status)), ", %.0f s ago" % age if age > 3 else "")]
      if self._problem:
        parts.append('<p class="card alarm">No ps answers any more: the job has ended, or its ps '
                     "are lost. This is its last status. (%s)</p>" % _escape(self._problem))
      for job in self._status.jobs:
        if self._problem:
          job = job._replace(state="no answer")
        parts += _job(job, self._points[job.container, job.run])
    return "\n".join(parts)

  def __call__(self, environ, start_response):
    path = environ.get("PATH_INFO", "")
    if path not in ("/", "/status"):
      start_response("404 Not Found", list(_HEADERS))
      return [b"see /\n"]
    text = self.text()
    start_response("200 OK", list(_HEADERS))  # wsgiref adds to them
    return [(text if path == "/status" else _FRAME % (_STYLE, text, _SCRIPT)).encode("utf-8")]


def _loss(job: JobStatus) -> Optional[float]:
  losses = [task.loss for task in job.tasks if task.loss is not None and math.isfinite(task.loss)
            and task.steps_per_second is not None]
  return sum(losses) / len(losses) if losses else None


def _job(job: JobStatus, points: _Points) -> List[str]:
  where = "container %s" % job.container if job.container else "the default container"
  losses = [loss for _, loss, _ in points if loss is not None]
  tiles = [
    ("state", job.state),
    ("global step", "-" if job.global_step is None else "{:,}".format(job.global_step)),
    ("loss, mean of the workers", "%.4g" % losses[-1] if losses else "-"),
    ("steps per second", "%.1f" % job.steps_per_second),
    ("examples per second", "{:,.0f}".format(job.examples_per_second))]
  run = ", run %s" % job.run if job.run else ""
  parts = ["<h2>Job in %s</h2>" % _escape(where + run),
           '<div class="tiles">%s</div>' % "".join(
             '<div class="card%s"><span>%s</span><b>%s</b></div>' % (
               " bad" if text in ("failed", "no answer") else "", name, _escape(text))
             for name, text in tiles),
           '<div class="curves">%s%s</div>' % (
             _curve("loss", [(step, loss) for step, loss, _ in points if loss is not None]),
             _curve("steps per second", [(step, rate) for step, _, rate in points], 0.0))]
  for section in status_text.sections(job):
    if section.columns:
      parts.append('<div class="card">%s</div>' % _table(section))
    else:
      parts.append('<div class="card">%s</div>' % "".join(
        "<p>%s</p>" % _escape(text) for text, in section.rows))
  return parts


def _table(section: status_text.Section) -> str:
  kinds = [' class="text"' if column in status_text.TEXT_COLUMNS else ""
           for column in section.columns]
  head = "".join("<th%s>%s</th>" % (kind, _escape(column.lower()))
                 for kind, column in zip(kinds, section.columns))
  rows = "".join('<tr class="%s">%s</tr>' % (_escape(state or ""), "".join(
    "<td%s>%s</td>" % (kind, _escape(text)) for kind, text in zip(kinds, row)))
    for row, state in itertools.zip_longest(section.rows, section.states))
  return "<table><thead><tr>%s</tr></thead><tbody>%s</tbody></table>" % (head, rows)


def _curve(name: str, points: List[Tuple[int, float]], lowest: Optional[float] = None) -> str:
  """Returns a curve over the global step, as SVG; its y axis begins at `lowest` or its minimum."""
  title = "<span>%s</span>" % name
  if len(points) < 2:
    return '<div class="card">%s<p>The curve begins with the second look.</p></div>' % title
  xs, ys = zip(*points)
  low, high = min(ys) if lowest is None else lowest, max(ys)
  if high <= low:
    high = low + (abs(low) or 1.0)

  def x(value):
    return _LEFT + (value - xs[0]) / max(1, xs[-1] - xs[0]) * (_WIDTH - _LEFT - 24)

  def y(value):
    return 8 + (high - value) / (high - low) * (_HEIGHT - _BOTTOM - 8)

  marks = ['<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" '
           'text-anchor="end">%.4g</text>' % (
             _LEFT, _WIDTH - 24, y(tick), y(tick), _LEFT - 6, y(tick) + 4, tick)
           for tick in _ticks(low, high, 4)]
  marks += ['<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (
    x(tick), _HEIGHT - 4, "{:,.0f}".format(tick))
            for tick in _ticks(xs[0], xs[-1], 6) if tick == int(tick)]
  line = " ".join("%.1f,%.1f" % (x(step), y(value)) for step, value in points)
  return ('<div class="card">%s<svg viewBox="0 0 %d %d" role="img" aria-label="%s by global step, '
          'now %.4g">%s<polyline class="curve" points="%s"/><circle class="dot" cx="%.1f" '
          'cy="%.1f" r="3.5"/></svg></div>' % (
            title, _WIDTH, _HEIGHT, name, ys[-1], "".join(marks), line, x(xs[-1]), y(ys[-1])))


def _ticks(low: float, high: float, count: int) -> List[float]:
  """Returns about `count` round numbers from `low` to `high`."""
  if high <= low:
    return [low]
  power = 10.0 ** math.floor(math.log10((high - low) / count))
  step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * count >= high - low)
  first = math.ceil(low / step - 1e-9)
  return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _escape(text: str) -> str:
  return html.escape(text, quote=True)
