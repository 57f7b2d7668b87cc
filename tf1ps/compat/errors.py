"""The base class of every error that tf1ps raises."""

from __future__ import annotations


class Error(Exception):
  """An error that tf1ps raises itself.

  Each subclass also derives from the Python or TensorFlow class that callers already catch, such as
  `ValueError` or `RuntimeError`.
  """
