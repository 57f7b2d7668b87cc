from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tf1ps.compat import leftovers


@pytest.fixture(scope="module")
def ended():
  """The id of a process that has ended."""
  process = subprocess.Popen([sys.executable, "-S", "-c", ""])
  process.wait()
  return process.pid


def test_what_killed_processes_of_this_machine_left_is_removed(tmp_path, ended):
  host, path = socket.gethostname(), str(tmp_path / "p[1].csv")
  gone = [f"p[1].csv.{host}.{ended}.tmp", f"p[1].csv.{host}.{os.getpid()}.tmp"]
  stay = ["p[1].csv", f"p[1].csv.{host}.{os.getppid()}.tmp", f"p[1].csv.elsewhere.{ended}.tmp",
          f"q.csv.{host}.{ended}.tmp", f"p[1].csv.{host}.x.tmp"]
  for name in (gone[0], *stay):
    (tmp_path / name).write_text("x")
  (tmp_path / gone[1] / "variables").mkdir(parents=True)  # as of an export
  assert leftovers.temporary_path(path) == str(tmp_path / gone[1])
  assert sorted(os.listdir(str(tmp_path))) == sorted(stay)


def test_at_a_url_only_the_name_is_made():
  assert leftovers.temporary_path("gs://b/m") == "gs://b/m.%s.%d.tmp" % (
    socket.gethostname(), os.getpid())


def test_whether_a_process_has_ended(ended):
  assert leftovers.has_ended(ended) and not leftovers.has_ended(os.getpid())
