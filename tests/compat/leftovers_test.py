from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile

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


def test_a_directory_for_this_process_takes_the_place_of_those_of_killed_ones(
    tmp_path, ended, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  host = socket.gethostname()
  stay = [f"tf1ps-model-a.{host}.{os.getppid()}.tmp", f"tf1ps-model-a.elsewhere.{ended}.tmp",
          f"tf1ps-model-kept.{host}.{ended}.tmp", f"tf1ps-model-a.{host}.x.tmp",
          f"other.{host}.{ended}.tmp"]
  for name in [f"tf1ps-call-a.{host}.{ended}.tmp", *stay]:
    (tmp_path / name / "checkpoints").mkdir(parents=True)
  leftovers.keep_directory(str(tmp_path / stay[2]))
  with leftovers.temporary_directory("model") as path:
    name = os.path.basename(path)
    assert name.startswith("tf1ps-model-") and name.endswith(f".{host}.{os.getpid()}.tmp")
    assert sorted(os.listdir(str(tmp_path))) == sorted([name, *stay])
  assert sorted(os.listdir(str(tmp_path))) == sorted(stay)


def test_at_a_url_only_the_name_is_made():
  assert leftovers.temporary_path("gs://b/m") == "gs://b/m.%s.%d.tmp" % (
    socket.gethostname(), os.getpid())


def test_whether_a_process_has_ended(ended):
  assert leftovers.has_ended(ended) and not leftovers.has_ended(os.getpid())
