"""The ensemble of processes, one of which is dead and comes later."""
from __future__ import annotations

import pathlib

import pytest

from tests import file_tasks, harness

FILE = str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "ensemble_queues.py")


@pytest.mark.slow
def test_a_network_that_is_dead_and_comes_back(start):
  address, = harness.addresses(1)

  def begin(role, *arguments):
    return start(role, file_tasks.run_file, FILE, "--role=" + role, "--ps=" + address, *arguments)

  def feed(*arguments):
    feeder = begin("feeder", *arguments)
    assert feeder.wait() == 0, feeder.output

  begin("ps")
  networks = [begin("net", "--index=%d" % index) for index in range(2)]
  last = begin("aggregator", "--timeout=4")
  for index, network in enumerate(networks):
    network.wait_for("net %d serves" % index)
  last.wait_for("waits for requests")
  feed("--inputs=1,2")
  last.wait_for("[4.0, 12.0] mean 8.0")
  assert last.lines[-3:] == ["net 2 timed out", "[2.0, 6.0] mean 4.0", "[4.0, 12.0] mean 8.0"]

  networks.append(begin("net", "--index=2"))
  networks[2].wait_for("net 2 serves")
  harness.wait_until(lambda: feed("--inputs=1") or "net 2 is back" in last.output)
  feed("--inputs=3", "--last")
  for task in networks + [last]:
    assert task.wait() == 0, task.output
  assert last.lines[-1] == "[6.0, 18.0, 30.0] mean 18.0"
  assert networks[0].lines[-1] == networks[1].lines[-1].replace("net 1", "net 0")
