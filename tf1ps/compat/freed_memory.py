"""Keeps memory that TensorFlow frees in the process, so that the next step needs no new pages.

TensorFlow allocates each tensor by the C library, and frees it when its last reader has run. The
GNU C library returns large blocks to the system at once, and the top of its heap soon after. The
next step then gets new pages, which the kernel clears: with variables of some megabytes this took
13 % of the time of a ps, and 8 % of a worker's (docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
_TOP = 1 << 30  # bytes: the free top of the heap that the process keeps
_LARGEST_BLOCK = 32 << 20  # bytes: the largest threshold that mallopt(3) accepts on 64 bits


def keep_freed_memory() -> bool:
  """Has this process keep up to 1 GiB of freed memory; returns whether it does.

  It does not if the environment has settings for the allocator (GLIBC_TUNABLES, MALLOC_...), or if
  the C library is another than glibc.
  """
  if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
      name.startswith("MALLOC_") for name in os.environ):
    return False
  try:
    mallopt = ctypes.CDLL(None).mallopt
  except (OSError, AttributeError, TypeError):  # not glibc
    return False
  return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) and mallopt(_TRIM_THRESHOLD, _TOP))
