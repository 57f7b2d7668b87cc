from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from tf1ps.compat import process_identity, temporary_files


@pytest.fixture(scope="module")
def ended():
  """The identity of a process that has ended."""
  return subprocess.check_output([sys.executable, "-c", (
    "from tf1ps.compat import own_identity; print(own_identity())")], text=True).strip()


OWN = process_identity.own_identity()


def test_what_killed_processes_of_this_machine_left_is_removed(tmp_path, ended):
  path = str(tmp_path / "p[1].csv")
  gone = [f"p[1].csv.{ended}.tmp", f"p[1].csv.{OWN}.tmp"]
  stay = ["p[1].csv", f"p[1].csv.{ended}x.tmp", f"q.csv.{ended}.tmp", "p[1].csv.x.tmp"]
  for name in (gone[0], *stay):
    (tmp_path / name).write_text("x")
  (tmp_path / gone[1] / "variables").mkdir(parents=True)  # as of an export
  assert temporary_files.temporary_path(path) == str(tmp_path / gone[1])
  assert sorted(os.listdir(str(tmp_path))) == sorted(stay)


def test_a_directory_for_this_process_takes_the_place_of_those_of_killed_ones(
    tmp_path, ended, monkeypatch):
  monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
  stay = [f"tf1ps-model-kept.{ended}.tmp", f"tf1ps-model-a.{ended}x.tmp",
          "tf1ps-model-a.x.tmp", f"other.{ended}.tmp"]
  for name in [f"tf1ps-call-a.{ended}.tmp", *stay]:
    (tmp_path / name / "checkpoints").mkdir(parents=True)
  temporary_files.keep_directory(str(tmp_path / stay[0]))
  with temporary_files.temporary_directory("model") as path:
    name = os.path.basename(path)
    assert name.startswith("tf1ps-model-") and name.endswith(f".{OWN}.tmp")
    assert sorted(os.listdir(str(tmp_path))) == sorted([name, *stay])
  assert sorted(os.listdir(str(tmp_path))) == sorted(stay)


def test_at_a_url_only_the_name_is_made():
  assert temporary_files.temporary_path("gs://b/m") == "gs://b/m.%s.tmp" % OWN
