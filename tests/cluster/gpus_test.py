from __future__ import annotations

import logging
import os

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tf1ps.cluster import gpus
from tf1ps.cluster.description import Cluster

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
  assert division.note == "2 GPUs for 3 workers: they share them"
  assert gpus.divide_gpus(["0"], 2).note == "1 GPU for 2 workers: they share it"


def test_no_worker_is_refused():
  with pytest.raises(ValueError, match="num_workers must be 1 or more, got 0"):
    gpus.divide_gpus(["0"], 0)


APART = {"ps": {0: "a:1"}, "worker": {0: "a:2", 1: "b:1"}}
TOGETHER = {"ps": {0: "a:1"}, "worker": {0: "a:2", 1: "a:3"}}


@pytest.fixture
def two_gpus(tmp_path, monkeypatch):
  """A machine on which nvidia-smi shows two GPUs, and nobody has divided them."""
  monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path, TWO_GPUS)["PATH"])
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_workers_of_one_host_see_a_share_each(two_gpus, monkeypatch):
  assert gpus.take_share(Cluster(TOGETHER, "worker", 1)) == (("0", "1"), None)
  assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
  assert gpus.take_share(Cluster(TOGETHER, "worker", 0)) is None, "the environment has decided"
  assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
  three = {"ps": {0: "a:1"}, "chief": {0: "a:2"}, "worker": {0: "a:3", 1: "a:4"}}
  division = gpus.take_share(Cluster(three, "worker", 1))
  assert division.note == "2 GPUs for 3 workers: they share them"
  assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


@pytest.mark.parametrize("jobs, job, index", [
  (APART, "worker", 0), (APART, "worker", 1), (TOGETHER, "ps", 0)])
def test_a_worker_with_a_host_of_its_own_and_a_ps_take_no_share(two_gpus, jobs, job, index):
  assert gpus.take_share(Cluster(jobs, job, index)) is None
  assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_without_a_gpu_nothing_is_set(monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  assert gpus.take_share(Cluster(TOGETHER, "worker", 1)) is None
  assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_workers_of_one_host_take_memory_as_they_need_it(two_gpus, caplog):
  caplog.set_level(logging.INFO, "tf1ps")
  config = tf.ConfigProto(intra_op_parallelism_threads=3)
  made = gpus.with_gpus(config, Cluster(TOGETHER, "worker", 0))
  assert made.gpu_options.allow_growth and made.intra_op_parallelism_threads == 3
  assert not config.HasField("gpu_options")  # the caller's stays as it was
  assert gpus.with_gpus(None, Cluster(TOGETHER, "worker", 1)).gpu_options.allow_growth
  assert [record.getMessage() for record in caplog.records] == 2 * [
    "2 workers share this host, so each takes GPU memory as it needs it"]


def test_where_there_is_no_gpu_nothing_is_said(caplog, monkeypatch, tmp_path):
  monkeypatch.setenv("PATH", str(tmp_path))
  monkeypatch.setenv(gpus.VARIABLE, gpus.NO_GPU)
  caplog.set_level(logging.INFO, "tf1ps")
  assert gpus.with_gpus(None, Cluster(TOGETHER, "worker", 1)).gpu_options.allow_growth
  assert not caplog.records


@pytest.mark.parametrize("index", [0, 1])
def test_a_worker_with_a_host_of_its_own_keeps_its_config(index):
  assert gpus.with_gpus(None, Cluster(APART, "worker", index)) is None


def test_options_of_the_program_win():
  for config in (tf.ConfigProto(device_count={"GPU": 1}),
                 tf.ConfigProto(gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5)),
                 tf.ConfigProto(gpu_options=tf.GPUOptions(allow_growth=False))):
    for job in ("ps", "worker"):
      assert gpus.with_gpus(config, Cluster(TOGETHER, job, 0)) is config


def test_servers_have_such_a_config():
  """By the definition that TensorFlow's server keeps."""
  ps, *workers = harness.addresses(3)
  jobs = {"ps": [ps], "worker": workers}
  ps, worker = (
    tf1ps.Server(tf.train.ClusterSpec(jobs), name, 0).server_def.default_session_config
    for name in ("ps", "worker"))
  assert dict(ps.device_count) == {"GPU": 0} and not ps.HasField("gpu_options")
  assert dict(worker.device_count) == {} and worker.gpu_options.allow_growth


def test_gpus_that_tensorflow_does_not_see_are_warned_of_once(two_gpus, caplog, monkeypatch):
  """As where a library of CUDA is missing."""
  if tf.config.experimental.list_physical_devices("GPU"):
    pytest.skip("needs a TensorFlow that sees no GPU")
  monkeypatch.setattr(gpus, "_warned", [])
  for _ in range(2):
    gpus.warn_of_unseen_gpus()
  assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
    "TensorFlow sees no GPU, but this process may use GPU 0, GPU 1"]


def test_hidden_gpus_are_not_missed(caplog, monkeypatch):
  monkeypatch.setattr(gpus, "_warned", [])
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
  gpus.warn_of_unseen_gpus()
  assert not caplog.records
