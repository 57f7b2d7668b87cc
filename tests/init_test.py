from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import tf1ps
from tf1ps import version

NAMES = ["ClusterCoordinator", "Coordinator", "Error", "FIFOQueue",
         "GreedyLoadBalancingStrategy", "ModelSpec",
         "MonitoredTrainingSession",
         "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue", "Server",
         "Supervisor", "SyncReplicasOptimizer", "byte_size_load_fn", "evaluate", "export",
         "local_cluster", "main", "predict", "replica_device_setter", "run_local",
         "start_queue_runners"]
PROGRAM = """
import json, sys
import tf1ps
from tf1ps import version
listed = dir(tf1ps)
heavy = [name for name in ("tensorflow", "numpy", "grpc", "absl") if name in sys.modules]
print(json.dumps([heavy, tf1ps.__version__, listed, tf1ps.__all__, hasattr(tf1ps, "absent")]))
"""


def test_importing_it_imports_nothing_heavy():
  done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, check=True)
  heavy, found, listed, all_names, has_absent = json.loads(done.stdout.decode())
  assert heavy == []
  assert found == version.__version__
  assert set(NAMES + ["__version__"]) <= set(listed)
  assert sorted(all_names) == sorted(NAMES + ["__version__"])
  assert not has_absent


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_there_and_stays(name):
  value = getattr(tf1ps, name)
  assert callable(value) and value.__name__ == name
  assert vars(tf1ps)[name] is value  # found without a look for it the next time


def test_server_comes_with_what_its_join_needs():
  from tf1ps.cluster import server
  assert tf1ps.Server is server.Server
  assert server._end_waiter.__module__ == "tf1ps.state.ending"


def test_names_can_be_imported():
  from tf1ps import GreedyLoadBalancingStrategy, Server
  assert (Server, GreedyLoadBalancingStrategy) == (
      tf1ps.Server, tf1ps.GreedyLoadBalancingStrategy)


def test_another_name_is_refused_as_python_does():
  with pytest.raises(AttributeError, match="module 'tf1ps' has no attribute 'FIFOqueue'"):
    getattr(tf1ps, "FIFOqueue")  # noqa: B009
  with pytest.raises(ImportError, match="cannot import name 'absent'"):
    from tf1ps import absent  # noqa: F401


@pytest.mark.parametrize("level, is_quiet", [
  (None, True), pytest.param("0", False, marks=pytest.mark.slow)])
def test_the_first_use_of_a_name_imports_tensorflow_quietly(level, is_quiet):
  environment = {name: value for name, value in os.environ.items()
                 if name != "TF_CPP_MIN_LOG_LEVEL"}
  environment.update({"TF_CPP_MIN_LOG_LEVEL": level} if level else {})
  done = subprocess.run(
    [sys.executable, "-c", "import tf1ps; tf1ps.ModelSpec; import tensorflow.compat.v1 as tf\n"
     "with tf.Graph().as_default(), tf.Session() as session:\n"
     "  print(session.run(tf.constant(3)))"],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, env=environment)
  assert done.stdout == b"3\n"
  assert (re.search(rb"(?m)^(I0000|.*: I )", done.stderr) is None) == is_quiet, done.stderr
