"""Collectives between worker processes and between the devices of one: exact sums and values."""
from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication import nodes as nodes_lib
from tf1ps.replication import clones, collectives

WORKERS = nodes_lib.WORKERS


def group(index, num_tasks, num_devices=1, name="group"):
  return collectives.Group(name, index, num_tasks, [
    WORKERS[index] + device for device in clones.local_devices(num_devices)])


def run(nodes, build, num_tasks):
  """Runs what build(index) returns on so many workers at the same time; returns the results."""
  def work(index):
    with nodes.graph():
      fetches = build(index)
      with tf.Session(nodes.target(index), config=nodes.config(WORKERS[index])) as session:
        return session.run(fetches)

  return nodes.together(work, num_tasks)


@pytest.mark.parametrize("num_tasks, num_devices", [(1, 2), (2, 1), (3, 1), (2, 2)])
def test_the_mean_over_all_devices(nodes, num_tasks, num_devices):
  size = num_tasks * num_devices

  def build(index):
    numbers = [index * num_devices + device + 1.0 for device in range(num_devices)]
    return collectives.mean(group(index, num_tasks, num_devices), [
      [tf.fill([2, 3], np.float32(n)), tf.constant(n * 10, tf.float64), tf.constant([n, 0.0])]
      for n in numbers])

  mean = (size + 1) / 2
  for of_task in run(nodes, build, num_tasks):
    assert len(of_task) == num_devices
    for matrix, scalar, vector in of_task:
      np.testing.assert_allclose(matrix, np.full([2, 3], mean), rtol=1e-6)
      assert scalar == mean * 10 and scalar.dtype == np.float64
      np.testing.assert_allclose(vector, [mean, 0], rtol=1e-6)


@pytest.mark.parametrize("num_tasks, num_devices", [(1, 1), (1, 2), (2, 2)])
def test_rows_of_all_stand_one_behind_the_other(nodes, num_tasks, num_devices):
  size = num_tasks * num_devices

  def build(index):
    return collectives.gather(group(index, num_tasks, num_devices), [
      tf.constant([[10 * (index * num_devices + device), 1]]) for device in range(num_devices)],
      "rows")

  expected = [[10 * i, 1] for i in range(size)]
  results = [rows.tolist() for of_task in run(nodes, build, num_tasks) for rows in of_task]
  assert all(rows == results[0] for rows in results) and len(results) == size
  assert sorted(results[0]) == expected


@pytest.mark.parametrize("num_tasks", [1, 2, 3])
def test_everybody_gets_the_first_tasks_values(nodes, num_tasks):
  def build(index):
    return collectives.broadcast(group(index, num_tasks, 2), [
      tf.constant(index + 7, tf.int64), tf.constant([index + 0.5, 2.0]), tf.constant([[index]])])

  for step, vector, matrix in run(nodes, build, num_tasks):
    assert (step, vector.tolist(), matrix.tolist()) == (7, [0.5, 2.0], [[0]])


def test_two_groups_of_one_name_and_other_sizes_do_not_meet(nodes):
  for columns in (2, 3):
    for num_tasks in (2, 3):
      def build(index, num_tasks=num_tasks, columns=columns):
        return collectives.mean(group(index, num_tasks), [[tf.fill([columns], float(index))]])

      for (values,), in run(nodes, build, num_tasks):
        assert values.tolist() == [(num_tasks - 1) / 2] * columns


def test_tasks_that_disagree_are_refused(nodes, caplog):
  run(nodes, lambda index: collectives.agree(group(index, 2), "same"), 2)

  def build_and_fail(index):
    with nodes.graph():
      agree = collectives.agree(group(index, 2), "plan %d" % index)
      with tf.Session(nodes.target(index), config=nodes.config(WORKERS[index])) as session:
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
          session.run(agree)
        return str(raised.value)

  for index, said in enumerate(nodes.together(build_and_fail, 2)):
    assert "have built different models" in said and "plan %d" % index in said
  gc.collect()  # TensorFlow logs then which results were never used
  assert "never used" not in caplog.text


def test_the_config_names_the_leader():
  config = collectives.group_config("/job:chief/task:0", tf.ConfigProto(log_device_placement=True))
  assert config.experimental.collective_group_leader == "/job:chief/replica:0/task:0"
  assert config.log_device_placement
  with pytest.raises(ValueError, match="leader must be a task such as .* got '/job:worker'"):
    collectives.group_config("/job:worker")


@pytest.mark.parametrize("value, said", [
  (lambda: tf.constant("text"), "is string; a mean carries float16, float32"),
  (lambda: tf.placeholder(tf.float32, [None]), "collectives need the shape when"),
])
def test_what_cannot_travel_is_refused(value, said):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    collectives.mean(collectives.Group("g", 0, 2, ["/device:CPU:0"]), [[value()]])
