from __future__ import annotations

import os

import pytest

from tf1ps.launch import gpus

TWO_GPUS = """
echo 'GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5e0c8f1a-0000-0000-0000-000000000000)'
echo 'GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-5e0c8f1b-0000-0000-0000-000000000000)'
"""


def fake_nvidia_smi(folder, script):
  """Puts a program called nvidia-smi into a folder; returns an environment that finds it."""
  program = folder / "nvidia-smi"
  program.write_text("#!/bin/sh\ntest \"$*\" = -L || exit 9\n" + script)
  program.chmod(0o755)
  return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}


@pytest.mark.parametrize("value, expected", [
    ("0", ["0"]), ("2,0, 5", ["2", "0", "5"]), ("", []), ("-1", []), ("1,-1,0", ["1"]),
    ("GPU-5e0c8f1a,MIG-aa/1/0", ["GPU-5e0c8f1a", "MIG-aa/1/0"]), ("NoDevFiles", [])])
def test_the_environment_decides(value, expected):
  assert gpus.visible_gpus({"CUDA_VISIBLE_DEVICES": value, "PATH": ""}) == expected


def test_else_nvidia_smi_is_asked(tmp_path):
  assert gpus.visible_gpus(fake_nvidia_smi(tmp_path, TWO_GPUS)) == ["0", "1"]


@pytest.mark.parametrize("script", ["exit 1", TWO_GPUS + "exit 6", "echo No devices were found."])
def test_an_nvidia_smi_that_fails_shows_none(tmp_path, script):
  assert gpus.visible_gpus(fake_nvidia_smi(tmp_path, script)) == []


def test_an_nvidia_smi_that_hangs_shows_none(tmp_path, set_timing):
  set_timing(gpus, nvidia_smi_limit=0.2)
  assert gpus.visible_gpus(fake_nvidia_smi(tmp_path, "exec sleep 60")) == []


def test_no_nvidia_smi_shows_none(tmp_path):
  assert gpus.visible_gpus({"PATH": str(tmp_path)}) == []


@pytest.mark.parametrize("seen, num_workers, values", [
    ([], 2, ("-1", "-1")),
    (["0", "1"], 1, ("0,1",)),
    (["0", "1"], 2, ("0", "1")),
    (["0", "1", "2", "3", "4", "5", "6", "7"], 3, ("0,1,2", "3,4,5", "6,7")),
    (["3", "GPU-a", "1"], 2, ("3,GPU-a", "1"))])
def test_each_worker_has_a_contiguous_share(seen, num_workers, values):
  assert gpus.divide_gpus(seen, num_workers) == (values, None)


def test_workers_share_where_there_are_too_few():
  division = gpus.divide_gpus(["4", "6"], 3)
  assert division.values == ("4", "6", "4")
  assert division.note.startswith("2 GPUs for 3 workers: they share")
  assert gpus.divide_gpus(["0"], 2).note.startswith("1 GPU for 2 workers")


def test_no_worker_is_refused():
  with pytest.raises(ValueError, match="num_workers must be 1 or more, got 0"):
    gpus.divide_gpus(["0"], 0)
