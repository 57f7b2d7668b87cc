"""Draws a chart of rows: each system's steps per second as a multiple of the classic script's."""
from __future__ import annotations

from typing import Sequence

from benchmarks import interleaving, rows


def draw(path: str, found: Sequence[dict], caption: str) -> bool:
  """Draws the chart; returns whether it could be drawn, and logs the reason if not.

  Args:
    path: the path of the PNG file.
    found: the rows; rows without a ratio are left out.
    caption: the conditions.
  """
  try:
    import matplotlib
  except ImportError:
    interleaving.say("no chart without matplotlib: pip install \"tf1ps[bench]\"")
    return False
  matplotlib.use("Agg")
  from matplotlib import pyplot

  bars = [one for one in found if one["ratio_to_classic"] is not None]
  if not bars:
    interleaving.say("no chart: no row has a ratio")
    return False
  figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.28 * len(bars)))
  for place, one in enumerate(bars):
    rate, ratio = one["steps_per_second"], one["ratio_to_classic"]
    unit = rate["median"] / ratio  # the steps per second of the classic script
    ours = one["system"].startswith("tf1ps")
    axes.barh(place, ratio, color="tab:orange" if ours else "tab:gray",
              alpha=1.0 if rows.is_headline(one) else 0.4,
              xerr=[[max(0.0, ratio - rate["min"] / unit)],
                    [max(0.0, rate["max"] / unit - ratio)]])
  axes.set_yticks(range(len(bars)))
  axes.set_yticklabels(["%s, %s: %s" % (one["model"], one["link"], one["system"]) for one in bars],
                       fontsize=7)
  axes.invert_yaxis()
  axes.axvline(1.0, color="black", linewidth=0.8)
  axes.set_xlabel("steps/s, in those of what it is compared with; lines: smallest to largest\n"
                  + caption, fontsize=7)
  figure.tight_layout()
  figure.savefig(path, dpi=120)
  pyplot.close(figure)
  return True
