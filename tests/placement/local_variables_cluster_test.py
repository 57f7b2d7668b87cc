"""Local variables in a cluster of real processes: 1 ps and 2 workers.

Each worker builds the same graph with TensorFlow's setter and with ours, and is told through a
pipe what to run.
"""
from __future__ import annotations

import multiprocessing.connection

import pytest

from tests import harness
from tests.placement import mean_tasks


@pytest.fixture(scope="module")
def ask(forks, tmp_path_factory):
  """Starts the cluster; yields a function that asks both workers, one after the other."""
  ps, worker0, worker1 = harness.addresses(3)
  spec = {"ps": [ps], "worker": [worker0, worker1]}
  tasks, pipes = [], []
  try:
    for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]:
      with multiprocessing.connection.Listener(
          str(tmp_path_factory.mktemp("pipe") / "s")) as listener:
        tasks.append(forks.start(
          "%s %d" % (job, index), mean_tasks.run_task, spec, job, index, listener.address))
        pipes.append(listener.accept())

    def ask_workers(setter_name, use_resource, step, values=(None, None)):
      answers = []
      for pipe, value in zip(pipes[1:], values):
        pipe.send((setter_name, use_resource, step, value))
        assert pipe.poll(harness.LIMIT), "no answer to " + step
        answers.append(pipe.recv())
      return answers

    yield ask_workers
  finally:
    for pipe in pipes:
      pipe.close()
    for task in tasks:
      task.kill()


@pytest.mark.parametrize("setter_name, places, means, epochs", [
    ("stock", [[("ps", 0)], [("ps", 0)]], [5.0, 5.0], [3, 0]),
    ("ours", [[("worker", 0)], [("worker", 1)]], [0.0, 10.0], [3, 3]),
])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_each_worker_has_its_own(ask, setter_name, places, means, epochs, use_resource):
  ask(setter_name, use_resource, "init")
  assert ask(setter_name, use_resource, "update", (0.0, 10.0)) == places
  assert ask(setter_name, use_resource, "mean") == means
  assert ask(setter_name, use_resource, "epochs") == epochs
