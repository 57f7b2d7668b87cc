from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import held_task, path_check
from tf1ps.cluster.description import Cluster, Task

ELSEWHERE = "240.0.0.1:1"  # no machine has it, and none is asked for it


@pytest.fixture(scope="module")
def stock():
  """A stock server of this process, ps 0; returns (its address, its target)."""
  server = tf.train.Server({"ps": ["localhost:0"]}, "ps", 0)
  yield "localhost:" + server.target.rsplit(":", 1)[1], server.target


def test_a_second_process_for_one_task_is_refused(ps, stock):
  """It has a server of its own, and the address of the first one in its cluster."""
  address, target = stock
  there, is_own = held_task.check_not_held(Task("ps", 0, address), target)
  assert there.is_up and is_own
  with pytest.raises(held_task.TaskHeldError, match="ps/task:0 at %s is already another process; "
                     "this is process .*twice" % ps.address):
    # On another machine, TensorFlow 2's target has the first machine's host.
    held_task.check_not_held(ps, "grpc://192.0.2.1:" + target.rsplit(":", 1)[1])


def test_a_process_at_whose_address_another_task_answers_is_refused(ps, stock):
  with pytest.raises(held_task.TaskHeldError, match="this is process .*, but /job:worker/task:3 at "
                     "%s: another task answers there: /job:ps/task:0. Start" % ps.address):
    held_task.check_not_held(Task("worker", 3, ps.address), stock[1])


def proven(stock, caplog, address, control_task=None):
  """Whether it is, with the warnings."""
  jobs = {"ps": {0: address}} if control_task is None else {"ps": {0: control_task, 1: address}}
  job = Cluster(jobs, "ps", len(jobs["ps"]) - 1)
  return held_task.is_proven(job, stock[1]), [r.getMessage() for r in caplog.records]


def test_a_process_that_is_reached_is_proven(stock, caplog):
  assert proven(stock, caplog, stock[0]) == (True, [])


def test_a_process_on_a_machine_without_its_address_is_warned(stock, caplog):
  is_proven, (said,) = proven(stock, caplog, ELSEWHERE)
  assert not is_proven
  assert "does not have the address %s of /job:ps/task:0. The probe" % ELSEWHERE in said
  assert "Start /job:ps/task:0 on the machine of that address, unless" in said


def test_nothing_is_said_of_an_address_of_this_machine_or_an_unknown_name(stock, caplog):
  assert proven(stock, caplog, harness.addresses(1)[0]) == (True, [])
  assert proven(stock, caplog, "no-such-host.invalid:1") == (True, [])


def test_an_address_that_every_machine_has(ps, caplog):
  # Only the address of the control task tells whether this is its machine.
  server = tf.train.Server({"ps": {1: "localhost:0"}}, "ps", 1)
  stock = "localhost:" + server.target.rsplit(":", 1)[1], server.target
  assert proven(stock, caplog, stock[0], ps.address) == (True, [])
  is_proven, (said,) = proven(stock, caplog, stock[0], ELSEWHERE)
  assert not is_proven
  assert said.startswith(
    "/job:ps/task:1 has the address %s, which means another machine to each host. So "
    "/job:ps/task:0 at %s cannot reach this process, except through a tunnel. Give" % (
      stock[0], ELSEWHERE))


def test_a_failing_path_check_sees_a_process_that_came_later(stock):
  """The ps reaches that one: this process's round fails, and then it knows why."""
  ps, first = harness.addresses(2)
  jobs = {"ps": [ps], "worker": [first]}
  servers = [tf.train.Server(jobs, "ps", 0), tf.train.Server(jobs, "worker", 0)]
  own = tf.train.Server({"ps": [ps], "worker": harness.addresses(1)}, "worker", 0)
  tasks = [Task("ps", 0, ps), Task("worker", 0, first)]
  config = tf.ConfigProto(device_filters=[task.name for task in tasks])
  message = "worker/task:0 at %s is already another" % first
  with pytest.raises(held_task.TaskHeldError, match=message):
    path_check.check_paths(own.target, tasks[1], tasks[:1], config, 60.0)
  assert servers
