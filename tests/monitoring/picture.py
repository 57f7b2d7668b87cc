"""Draws docs/screens/top.svg of docs/monitoring.md: `python -m tests.monitoring.picture`."""
from __future__ import annotations

import pathlib
import re

from tests.monitoring import sample_status
from tf1ps.monitoring import render

PICTURE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "screens" / "top.svg"
_WIDTH = 114


def draw():
  """Returns (the SVG, the same as text) of tf1ps-top on the sample status."""
  from rich.console import Console

  console = Console(record=True, width=_WIDTH, file=open("/dev/null", "w"), force_terminal=True)
  console.print(render(sample_status.make()))
  text = console.export_text(clear=False)
  svg = console.export_svg(title="tf1ps-top --ps_hosts=10.0.0.2:2222", unique_id="top")
  svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # they come from the network
  return svg.replace("Fira Code, ", "").replace(
    "font-family: Fira Code;", "font-family: monospace;"), text


if __name__ == "__main__":
  PICTURE.write_text(draw()[0], encoding="utf-8")
