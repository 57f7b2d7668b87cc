"""The comparison of split networks, in one process and on two tasks."""
from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import file_tasks, harness
from tests.examples import importing

FILE = str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "model_parallel.py")
BATCH, DEPTH, UNITS, TIMES = 32, 64, 128, 10


def check(output):
  losses = re.findall(r"after 7 steps the loss is (\S+), and split (\S+)", output)
  assert len(losses) == 4, output
  assert all(abs(float(one) - float(other)) < 2e-6 for one, other in losses), output
  assert output.count("worth it") == 4
  sent = [int(value.replace(",", "")) for value in re.findall(r"^split +\S+ +(\S+)$", output, re.M)]
  outputs = 4 * BATCH * UNITS
  # There and back: the first layer's outputs, the second's to the loss, and the gradients of both;
  # the inputs, half of the outputs and their gradients; the same with half of the inputs; the first
  # again, at each time. And the learning rate, 4 bytes.
  assert sent == [4 * outputs + 4, 4 * BATCH * DEPTH + outputs + 4,
                  2 * BATCH * DEPTH + outputs + 4, 4 * TIMES * outputs + 4]


class Waiting:
  """A cell that counts times. In layer 1 it waits at each time until layer 0 is one time further.

  Layer 0 puts a token into a queue at each time. Layer 1 takes two of them at the first time, one
  at each of the next, none at the last: so after its time t, layer 0 has done time t + 1.
  """

  units = 1

  def __init__(self, layer, queue):
    self._layer, self._queue = layer, queue

  def build(self, depth):
    pass

  def zero_state(self, batch):
    return tf.zeros([batch, 1])

  def __call__(self, inputs, state):
    if self._layer == 0:
      with tf.control_dependencies([inputs, state]):
        wait = self._queue.enqueue(0.0)
    else:
      with tf.control_dependencies([inputs]):
        time = state[0, 0]
        count = tf.where(time < 1, 2, tf.where(time < TIMES - 1, 1, 0))
        wait = self._queue.dequeue_many(count)
    with tf.control_dependencies([wait]):
      return tf.identity(inputs), state + 1.0


def test_a_recurrent_layer_works_while_the_one_before_is_at_the_next_time():
  example = importing.load("model_parallel")
  values = np.random.RandomState(0).randn(TIMES, 2, 1).astype(np.float32)
  with tf.Graph().as_default():
    queue = tf.queue.FIFOQueue(100, tf.float32, [()])
    x = tf.placeholder(tf.float32, values.shape)
    outputs = example.unrolled(x, [Waiting(0, queue), Waiting(1, queue)], ["/cpu:0", "/cpu:1"])
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
      # Were it at the same time for both, the first one would wait for ever.
      found = session.run(outputs, {x: values}, options=tf.RunOptions(timeout_in_ms=60000))
      assert found.tolist() == values.tolist() and session.run(queue.size()) == 0


@pytest.mark.slow
def test_logical_devices(start):
  task = start("one", file_tasks.run_file, FILE, "--steps=4")
  assert task.wait() == 0, task.output
  check(task.output)


@pytest.mark.slow
def test_two_tasks(start):
  hosts = "--hosts=" + ",".join(harness.addresses(2))
  start("task 1", file_tasks.run_file, FILE, hosts, "--steps=4", "--task_index=1")
  task = start("task 0", file_tasks.run_file, FILE, hosts, "--steps=4")
  assert task.wait() == 0, task.output
  check(task.output)
