"""Advice for the errors that a program for an older NumPy gets from today's NumPy."""

from __future__ import annotations

import re

_OLDER = "pip install 'numpy<2.3'"
# (the type of the error, its message, the advice)
_HINTS = (
  (TypeError,
   r"^only 0-dimensional arrays can be converted|a real number is required, not numpy\.ndarray$",
   "NumPy 2.4 makes no number of an array, even of one element: %s, or write w[0] for w" % _OLDER),
  (ValueError, r"The requested array has an inhomogeneous shape",
   "NumPy makes no array of rows of different lengths since 1.24: write np.array(rows, "
   "dtype=object)"),
  ((AttributeError, ValueError),
   r"^'numpy\.ndarray' object has no attribute 'tostring'|^The binary mode of fromstring",
   "NumPy 2.3 has removed it: %s, or write tobytes and frombuffer" % _OLDER),
)


def numpy_hint(error: BaseException) -> str:
  """Returns the advice for an error of NumPy; "" for other errors."""
  return next((hint for kind, message, hint in _HINTS
               if isinstance(error, kind) and re.search(message, str(error))), "")
