from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, strangers
from tf1ps.cluster import versions
from tf1ps.cluster.description import Task


def test_a_ps_of_this_version_passes(start):
  jobs = {"ps": harness.addresses(1)}
  start("ps", cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  ps, worker = Task("ps", 0, jobs["ps"][0]), Task("worker", 0, "127.0.0.1:1")
  versions.check_versions(worker, [ps], tf.version.VERSION)
  versions.check_versions(worker, [ps], "1.15.5")
  versions.check_versions(worker, [worker, Task("ps", 1, "127.0.0.1:1")], "2.21.0")  # it names none


def test_a_ps_on_tensorflow_1_is_refused_by_a_worker_on_tensorflow_2():
  # The text is that of TensorFlow 1.15.5; worker_service_test.py reads one from a true server.
  said = ("GraphDef min consumer version 2147483647 above current version 134 for TensorFlow "
          "1.15.5.  Please upgrade TensorFlow.")
  with strangers.grpc_server("tensorflow.WorkerService", error=said) as address:
    ps, worker = Task("ps", 0, address), Task("worker", 0, "127.0.0.1:1")
    with pytest.raises(versions.VersionError) as raised:
      versions.check_versions(worker, [ps], "2.21.0")
    versions.check_versions(worker, [ps], "1.15.5")
    versions.check_versions(ps, [ps], "2.21.0")  # itself
  assert str(raised.value) == (
    "%s at %s runs TensorFlow 1.15.5, which cannot serve %s on TensorFlow 2.21.0. Start %s on "
    "TensorFlow 2.21.0 first, or this task on TensorFlow 1.15.5." % (
      ps.name, address, worker.name, ps.name))
