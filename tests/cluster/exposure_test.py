from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

from tf1ps.cluster import exposure
from tf1ps.cluster.description import Cluster

JOBS = {"ps": {0: "127.0.0.1:2222"}, "worker": {0: "[::1]:2223"}}


ONE_INTERFACE = ("ip link add v0 type veth peer name v1 && ip addr add 10.1.2.3/24 dev v0 && "
                 "ip link set v0 up && ip link set v1 up && ip route add default via 10.1.2.4")
LOOPBACK_IS_THE_DEFAULT = "ip link set lo up && ip route add default dev lo"


def warning_in_a_namespace(setup):
  """Returns the warning in a network namespace of its own, or skips the test."""
  if not shutil.which("unshare") or subprocess.call(["unshare", "-rn", "sh", "-c", setup],
                                                    stderr=subprocess.DEVNULL):
    pytest.skip("this user may not make a network namespace with such an interface")
  program = ("from tf1ps.cluster import description, exposure\n"
             "cluster = description.Cluster({'worker': {0: 'a:1'}}, 'worker', 0)\n"
             "print(exposure.exposure_warning(cluster))")
  return subprocess.run(
      ["unshare", "-rn", "sh", "-c", setup + ' && exec "$0" -c "$1"', sys.executable, program],
      stdout=subprocess.PIPE, timeout=60, check=True,
      cwd=str(pathlib.Path(__file__).parents[2])).stdout.decode().strip()


def test_tells_port_and_address(monkeypatch):
  monkeypatch.setattr(exposure, "outside_address", lambda: "10.0.0.7")
  assert exposure.exposure_warning(Cluster(JOBS, "ps", 0)) == (
      "/job:ps/task:0 listens on port 2222 of every interface, 10.0.0.7 too, as all TensorFlow "
      'servers do: anyone who can connect can run anything here. See "Who can connect" in '
      "README.md.")
  assert "port 2223 of" in exposure.exposure_warning(Cluster(JOBS, "worker", 0))
  alone = Cluster({"worker": {0: "localhost:0"}}, "worker", 0)
  assert "a port that the system chooses of" in exposure.exposure_warning(alone)


def test_an_evaluator_has_no_server(monkeypatch):
  monkeypatch.setattr(exposure, "outside_address", lambda: "10.0.0.7")
  evaluator = Cluster(JOBS, "evaluator", 0, {0: "c:1"}, source="flags")
  assert exposure.exposure_warning(evaluator) is None


@pytest.mark.parametrize("setup", ["true", LOOPBACK_IS_THE_DEFAULT])
def test_no_warning_where_there_is_only_the_loopback(setup):
  assert warning_in_a_namespace(setup) == "None"


def test_a_warning_where_there_is_another_interface():
  assert "of every interface, 10.1.2.3 too," in warning_in_a_namespace(ONE_INTERFACE)
