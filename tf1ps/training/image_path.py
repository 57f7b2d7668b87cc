"""Checks the path of --summary_image. Nothing here imports TensorFlow."""

from __future__ import annotations

import importlib.util
import os

from tf1ps.compat import Error


class SummaryImageError(Error, ValueError):
  """No image can be written (--summary_image)."""


def check_summary_image(path: str) -> None:
  """Raises SummaryImageError if `path` cannot become an image; "" and None pass."""
  if not path:
    return
  folder = os.path.dirname(os.path.abspath(path))
  if not os.path.isdir(folder) or not os.access(folder, os.W_OK):
    raise SummaryImageError("--summary_image=%s: the directory %s is not there, or cannot be "
                            "written" % (path, folder))
  if os.path.isdir(path):
    raise SummaryImageError("--summary_image=%s is a directory" % path)
  if importlib.util.find_spec("matplotlib") is None:
    raise SummaryImageError("--summary_image needs the package matplotlib: run "
                            "pip install 'tf1ps[images]'")
