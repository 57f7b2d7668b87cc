"""The parts of this package that need no TensorFlow: its options, and the text of byte counts."""

import os

WIRE_DTYPES = ("float32", "bfloat16", "float16", "int8")
DEFAULT_PACK_BYTES = 1 << 19  # bytes; measured by `python -m benchmarks pack_bytes`
PACK_VARIABLE = "TF1PS_PACK_BYTES"  # of the environment of all tasks


def pack_bytes_of_process() -> int:
  """Returns the size in bytes below which tensors travel together; 0: all travel alone.

  Raises ValueError if TF1PS_PACK_BYTES is not a number of bytes.
  """
  text = os.environ.get(PACK_VARIABLE) or str(DEFAULT_PACK_BYTES)
  if not text.isdigit():
    raise ValueError("%s must be a number of bytes, 0 (nothing is packed) or more, got %r" % (
      PACK_VARIABLE, text))
  return int(text)


def format_bytes(count: float) -> str:
  """Returns a text such as "1.7 MB", in powers of 1,000, as is usual for networks and disks."""
  for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
    if count >= 0.9995 * size:
      return "%.3g %s" % (count / size, unit)
  return "%d bytes" % round(count)
