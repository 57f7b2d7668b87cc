from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tf1ps
from tf1ps import version

NAMES = ["ClusterCoordinator", "Coordinator", "Error", "FIFOQueue",
         "GreedyLoadBalancingStrategy", "ModelSpec",
         "MonitoredTrainingSession",
         "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue", "Server",
         "Supervisor", "SyncReplicasOptimizer", "byte_size_load_fn", "local_cluster", "main",
         "replica_device_setter", "run_local", "start_queue_runners"]
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
