from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import versions
from tf1ps.cluster.description import Task


def test_a_ps_of_this_version_passes(start):
  jobs = {"ps": harness.addresses(1)}
  start("ps", cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  ps, worker = Task("ps", 0, jobs["ps"][0]), Task("worker", 0, "127.0.0.1:1")
  versions.check_versions(worker, [ps])
  versions.check_versions(worker, [ps], "1.15.5")
  versions.check_versions(worker, [worker, Task("ps", 1, "127.0.0.1:1")])  # it names none
  if tf.version.VERSION.startswith("1."):
    said = "%s at %s runs TensorFlow %s, which cannot serve %s on TensorFlow 2.21.0. " % (
      ps.name, ps.address, tf.version.VERSION, worker.name)
    with pytest.raises(versions.VersionError, match=said):
      versions.check_versions(worker, [ps], "2.21.0")
