from __future__ import annotations

import subprocess
import sys

import pytest

# Allocates and frees 96 MiB, five times; prints the page faults of the last three times.
STEPS = """
import ctypes
import resource
import sys
from tf1ps.compat import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = libc.free.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t]
print(keep_freed_memory() if "keep" in sys.argv else None)
for number in range(5):
  if number == 2:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
  blocks = [libc.malloc(24 << 20) for _ in range(4)]
  for block in blocks:
    libc.memset(block, 1, 24 << 20)
  for block in blocks:
    libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(*argv):
  """Returns the answer of `keep_freed_memory`, and the page faults."""
  return subprocess.check_output(
    [sys.executable, "-c", STEPS, *argv], universal_newlines=True).split()


def test_a_later_step_needs_no_new_pages():
  """A block of 24 MiB has 6,144 pages of 4 KiB, or 12 of 2 MiB."""
  answer, faults = run()
  assert answer == "None" and int(faults) >= 3 * 4 * 12
  answer, left = run("keep")
  assert answer == "True" and int(left) < int(faults) / 10


@pytest.mark.parametrize("name, value", [
  ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1"), ("MALLOC_ARENA_MAX", "1")])
def test_the_users_own_settings_stay(monkeypatch, name, value):
  monkeypatch.setenv(name, value)
  assert run("keep")[0] == "False"
