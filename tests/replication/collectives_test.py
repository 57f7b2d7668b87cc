"""Collectives between worker processes and between the devices of one: exact sums and values."""
from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.replication import nodes as nodes_lib
from tf1ps.cluster.session import BoundedSession
from tf1ps.replication import clones, collectives

WORKERS = nodes_lib.WORKERS


def group(index, num_tasks, num_devices=1, name="group"):
  return collectives.make_group(name, index, WORKERS[:num_tasks], [
    WORKERS[index] + device for device in clones.local_devices(num_devices)])


def session(nodes, index):
  return tf.Session(nodes.target(index), config=tf.ConfigProto(device_filters=WORKERS))


def run(nodes, build, num_tasks, num_devices=1):
  """Runs what build(group) returns on so many workers at the same time; returns the results."""
  def work(index):
    with nodes.graph():
      own = group(index, num_tasks, num_devices)
      fetches = build(own)
      with session(nodes, index) as one:
        one.run(own.generation.initializer)
        return one.run((fetches, list(own.outbox)))[0]

  return nodes.together(work, num_tasks)


@pytest.mark.parametrize("num_tasks, num_devices", [(1, 2), (2, 1), (3, 1), (2, 2)])
def test_the_mean_over_all_devices(nodes, num_tasks, num_devices):
  size = num_tasks * num_devices

  def build(own):
    numbers = [own.task_index * num_devices + device + 1.0 for device in range(num_devices)]
    return collectives.mean(own, [
      [tf.fill([2, 3], np.float32(n)), tf.constant(n * 10, tf.float64), tf.constant([n, 0.0])]
      for n in numbers])

  mean = (size + 1) / 2
  for of_task in run(nodes, build, num_tasks, num_devices):
    assert len(of_task) == num_devices
    for matrix, scalar, vector in of_task:
      np.testing.assert_allclose(matrix, np.full([2, 3], mean), rtol=1e-6)
      assert scalar == mean * 10 and scalar.dtype == np.float64
      np.testing.assert_allclose(vector, [mean, 0], rtol=1e-6)


@pytest.mark.parametrize("num_tasks, num_devices", [(1, 1), (1, 2), (2, 2)])
def test_rows_of_all_stand_one_behind_the_other(nodes, num_tasks, num_devices):
  size = num_tasks * num_devices

  def build(own):
    return collectives.gather(own, [
      tf.constant([[10 * (own.task_index * num_devices + device), 1]])
      for device in range(num_devices)], "rows")

  expected = [[10 * i, 1] for i in range(size)]
  results = [rows.tolist() for of_task in run(nodes, build, num_tasks, num_devices)
             for rows in of_task]
  assert results == [expected] * size


@pytest.mark.parametrize("num_tasks", [1, 2, 3])
def test_everybody_gets_the_first_tasks_values(nodes, num_tasks):
  def build(own):
    index = own.task_index
    return collectives.broadcast(own, [
      tf.constant(index + 7, tf.int64), tf.constant([index + 0.5, 2.0]), tf.constant([[index]])])

  for step, vector, matrix in run(nodes, build, num_tasks, 2):
    assert (step, vector.tolist(), matrix.tolist()) == (7, [0.5, 2.0], [[0]])


def test_two_groups_of_one_name_and_other_sizes_do_not_meet(nodes):
  for columns in (2, 3):
    for num_tasks in (2, 3):
      def build(own, columns=columns):
        return collectives.mean(own, [[tf.fill([columns], float(own.task_index))]])

      for (values,), in run(nodes, build, num_tasks):
        assert values.tolist() == [(num_tasks - 1) / 2] * columns


def test_tasks_that_disagree_are_refused(nodes, caplog):
  run(nodes, lambda own: collectives.agree(own, "same"), 2)

  def build_and_fail(index):
    with nodes.graph():
      agree = collectives.agree(group(index, 2), "plan %d" % index)
      with session(nodes, index) as one:
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
          one.run(agree)
        return str(raised.value)

  for index, said in enumerate(nodes.together(build_and_fail, 2)):
    assert "have built different models" in said and "plan %d" % index in said
  gc.collect()  # TensorFlow logs then which results were never used
  assert "never used" not in caplog.text


class Trainer(object):
  """One of two workers, in a session of its own."""

  def __init__(self, nodes, index, container):
    with nodes.graph(container):
      self._group = group(index, 2)
      self._mean = collectives.mean(self._group, [[tf.constant([index + 1.0, 0.0])]])
      self._generation = tf.placeholder(tf.int64, [])
      self._agree = collectives.agree(self._group, "plan", self._generation)
      self._go_back = self._group.generation.assign(1)
      self.session = BoundedSession(
        nodes.target(index), config=tf.ConfigProto(device_filters=WORKERS))

  def begin(self, generation):
    self.session.run(self._agree, {self._generation: generation})

  def send_late(self):
    self.session.run(self._go_back)
    self.session.run(self._group.outbox[0])  # the other one's part

  def step(self):
    return self.session.run((self._mean, list(self._group.outbox)))[0][0][0].tolist()


def test_a_message_of_an_earlier_session_is_thrown_away_at_the_start_and_refused_later(nodes):
  """Worker 0 has sent its part of a step that worker 1 has never made."""
  trainers = [Trainer(nodes, index, "messages-of-earlier-sessions") for index in range(2)]
  nodes.together(lambda index: trainers[index].begin(1), 2)
  trainers[0].send_late()
  nodes.together(lambda index: trainers[index].begin(2), 2)
  assert nodes.together(lambda index: trainers[index].step(), 2) == [[1.5, 0.0]] * 2
  trainers[0].send_late()
  with pytest.raises(tf.errors.InvalidArgumentError, match="task:0 has sent a message of an ear"
                     ) as caught:
    trainers[1].step()
  assert collectives.is_late_message(caught.value)
  assert not collectives.is_late_message(tf.errors.InvalidArgumentError(
    None, None, "assertion failed: [the tasks of the group have built different models]"))


def test_a_session_that_was_given_up_takes_no_message_of_a_later_one(nodes):
  for generation in (1, 3, 5):
    first, waits = [Trainer(nodes, index, "given-up") for index in range(2)]
    ended = []

    def wait(waits=waits, generation=generation, ended=ended):
      try:
        waits.begin(generation)
      except KeyError as error:
        ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    harness.wait_until(lambda waits=waits: waits.session.is_running)
    waits.session.abort(lambda: KeyError("another worker was lost"))
    waits.session.close()
    thread.join(harness.LIMIT)
    assert ended
    trainers = [first, Trainer(nodes, 1, "given-up")]
    nodes.together(lambda index, trainers=trainers, generation=generation: (
      trainers[index].begin(generation + 1)), 2)
    assert nodes.together(lambda index, trainers=trainers: trainers[index].step(), 2) == (
      [[1.5, 0.0]] * 2)


@pytest.mark.parametrize("value, said", [
  (lambda: tf.constant("text"), "is string; a mean carries float16, float32"),
  (lambda: tf.placeholder(tf.float32, [None]), "collectives need the shape when"),
])
def test_what_cannot_travel_is_refused(value, said):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    collectives.mean(group(0, 2), [[value()]])
