"""The rows of a benchmark: one JSON object each, and a Markdown table of them.

Every row has the keys of `KEYS`, and "run" if `of_run` has added it. The value of a key that does
not apply to a row is null.
"""
from __future__ import annotations

import json
import statistics
from typing import Dict, List, Optional, Sequence

KEYS = ("model", "link", "system", "options", "steps_per_second", "ratio_to_classic",
        "cpu_ms_per_step", "peak_mb", "bytes_per_step", "eval_loss", "minibatches")
ANOTHER = " (another algorithm)"
_HEAD = ("model", "link", "system", "options", "steps/s (min to max)", "to classic",
         "CPU ms per step, worker + ps", "peak MB", "KB per step", "loss", "minibatches")


def summary(values: Sequence[float], digits: int = 4) -> Dict[str, float]:
  """Returns the median, the smallest and the largest value."""
  return {"median": _rounded(statistics.median(values), digits),
          "min": _rounded(min(values), digits), "max": _rounded(max(values), digits)}


def row(model: str, link: str, system: str, options: str, rates: Sequence[float],
        ratio: Optional[float] = None, cpu: Optional[Dict[str, float]] = None,
        peak_mb: Optional[float] = None, bytes_per_step: Optional[float] = None,
        eval_loss: Optional[float] = None, minibatches: Optional[int] = None) -> dict:
  """One row.

  Args:
    model, link, system, options: the names of what was measured.
    rates: the steps per second of each round.
    ratio: the ratio of the median to the classic script's median.
    cpu: the milliseconds of processor time per step, of "worker" and "ps".
    peak_mb: the peak memory of the processes together.
    bytes_per_step: the bytes that went over the link, both ways.
    eval_loss: the loss after `minibatches` minibatches.
    minibatches: the number of minibatches.
  """
  return dict(zip(KEYS, (
    model, link, system, options, summary(rates) if rates else None, _rounded(ratio, 4),
    None if cpu is None else {job: _rounded(cpu[job], 4) for job in ("worker", "ps")},
    _rounded(peak_mb, 5), None if bytes_per_step is None else int(bytes_per_step),
    _rounded(eval_loss, 8), minibatches)))


def lost(model: str, link: str, system: str, options: str, reason: str) -> dict:
  """Returns the row of a system that could not be measured, with the key "lost"."""
  return dict(row(model, link, system, options, []), lost=reason)


def of_run(rows: Sequence[dict], benchmark: str, table: int, conditions: dict) -> List[dict]:
  """Returns the rows of one table, with the key "run": what ran, when, where and how long."""
  run = dict(benchmark=benchmark, table=table, **conditions)
  return [dict(one, run=run) for one in rows]


def is_headline(one: dict) -> bool:
  """Whether a row may be a headline, because it is not the row of another algorithm."""
  return not one["system"].endswith(ANOTHER)


def incomplete(rows: Sequence[dict]) -> List[str]:
  """Returns a sentence for each incomplete row of a comparison; other rows may lack values."""
  found = []
  for one in rows:
    missing = [key for key in KEYS if key not in one]
    if one.get("minibatches") is not None and one.get("cpu_ms_per_step") is not None:
      missing += [key for key in KEYS if one.get(key) is None]
    if missing:
      found.append("%s, %s: no %s" % (one.get("model"), one.get("system"), ", ".join(missing)))
  return found


def write(path: str, rows: Sequence[dict]) -> None:
  """Writes a line of JSON for each row."""
  with open(path, "w") as file:
    for one in rows:
      file.write(json.dumps(one) + "\n")


def read(path: str) -> List[dict]:
  """Reads the rows that `write` has written."""
  with open(path) as file:
    return [json.loads(line) for line in file if line.strip()]


def table(rows: Sequence[dict]) -> str:
  """The rows as a Markdown table."""
  lines = ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
  for one in rows:
    rate, cpu = one["steps_per_second"], one["cpu_ms_per_step"]
    cells = [
      one["model"], one["link"], one["system"] + (" (lost)" if "lost" in one else ""),
      one["options"] and "`%s`" % one["options"],
      rate and "%s (%s to %s)" % tuple(map(short, (rate["median"], rate["min"], rate["max"]))),
      short(one["ratio_to_classic"]),
      cpu and "%s + %s" % (short(cpu["worker"]), short(cpu["ps"])), short(one["peak_mb"]),
      None if one["bytes_per_step"] is None else "%.1f" % (one["bytes_per_step"] / 1000),
      None if one["eval_loss"] is None else "%.6g" % one["eval_loss"], one["minibatches"]]
    lines.append("| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |")
  return "\n".join(lines)


def extras(rows: Sequence[dict]) -> List[str]:
  """A line for each row that has more than the common keys."""
  return ["- %s, %s: %s" % (one["model"], one["system"], ", ".join(
    "%s %s" % (key, json.dumps(value)) for key, value in one.items() if key not in (*KEYS, "run")))
          for one in rows if set(one) - set(KEYS) - {"run"}]


def short(value: Optional[float]) -> Optional[str]:
  """Returns a figure with three digits, or with more digits if it is large."""
  return None if value is None else "%.3g" % value if abs(value) < 100 else "%.0f" % value


def _rounded(value, digits):
  return None if value is None else float("%.*g" % (digits, value))
