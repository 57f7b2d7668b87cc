from __future__ import annotations

import logging
import os

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import threads
from tf1ps.cluster.description import Cluster

APART = {"ps": {0: "a:1"}, "worker": {0: "b:1", 1: "c:1"}}
TOGETHER = {"ps": {0: "localhost:1"}, "worker": {0: "c:1", 1: "127.0.0.1:2"}}


def of(jobs, job="worker", index=1):
  return Cluster(jobs, job, index)


@pytest.fixture
def cgroup(tmp_path, monkeypatch):
  """Makes the files of control groups: {path: text}; "self" is that of the process."""
  def make(files):
    for name, text in files.items():
      path = tmp_path / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text)
    monkeypatch.setattr(threads, "_CGROUP", str(tmp_path))
    monkeypatch.setattr(threads, "_OF_PROCESS", str(tmp_path / "self"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)

  make({})
  return make


def test_a_task_with_a_host_of_its_own_keeps_its_config(cgroup):
  config = tf.ConfigProto(inter_op_parallelism_threads=3)
  assert threads.with_threads(config, of(APART)) is config
  assert threads.with_threads(None, of(APART)) is None
  assert threads.with_threads(None, of(TOGETHER, "worker", 0)) is None
  assert threads.with_threads(None, of({"local": {0: "localhost:0"}}, "local", 0)) is None


@pytest.mark.parametrize("jobs", [TOGETHER, {"ps": {0: "H:1"}, "worker": {1: "h:2"}},
                                  {"ps": {0: "[::1]:1"}, "worker": {1: "127.0.0.1:2"}}])
def test_threads_of_tasks_that_share_a_host_do_not_spin(cgroup, jobs):
  config = tf.ConfigProto(intra_op_parallelism_threads=3, allow_soft_placement=True)
  made = threads.with_threads(config, of(jobs))
  assert made.experimental.disable_thread_spinning
  assert not config.experimental.disable_thread_spinning  # the caller's stays as it was
  assert (made.inter_op_parallelism_threads, made.intra_op_parallelism_threads) == (0, 3)
  assert made.allow_soft_placement


@pytest.mark.parametrize("files, cores", [
  ({}, None),
  ({"self": "0::/\n", "cpu.max": "max 100000\n"}, None),
  ({"self": "0::/\n", "cpu.max": "250000 100000\n"}, 2),
  ({"self": "0::/\n", "cpu.max": "50000 100000\n"}, 1),
  ({"self": "0::/\n", "cpu.max": "900000 100000\n"}, None),
  ({"self": "0::/a/b\n", "a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
  ({"self": "4:cpu,cpuacct:/x\n", "cpu/x/cpu.cfs_quota_us": "400000\n",
    "cpu/x/cpu.cfs_period_us": "100000\n"}, 4),
  ({"self": "4:cpu,cpuacct:/x\n", "cpu/cpu.cfs_quota_us": "200000\n",
    "cpu/cpu.cfs_period_us": "100000\n"}, 2),
  ({"self": "4:cpu,cpuacct:/\n3:cpuset:/\n", "cpu/cpu.cfs_quota_us": "-1\n",
    "cpu/cpu.cfs_period_us": "100000\n"}, None),
  ({"self": "no such form\n"}, None)])
def test_a_quota_of_cpu_grants_fewer_cores(cgroup, files, cores):
  cgroup(files)
  assert threads.granted_cores() == cores
  made = threads.with_threads(None, of(APART))
  if cores is None:
    assert made is None
  else:
    assert made.intra_op_parallelism_threads == cores
    assert made.inter_op_parallelism_threads == max(2, cores)
    assert not made.experimental.disable_thread_spinning


def test_numbers_that_the_program_gives_win_over_a_quota(cgroup, caplog):
  cgroup({"self": "0::/\n", "cpu.max": "200000 100000\n"})
  config = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=7)
  with caplog.at_level(logging.INFO, "tf1ps"):
    made = threads.with_threads(config, of(APART))
  assert caplog.messages == [
    "the CPU quota grants this process 2 of its cores: 1 threads run operations side by side, and "
    "7 work inside each"]
  assert (made.inter_op_parallelism_threads, made.intra_op_parallelism_threads) == (1, 7)
