"""What the tests of the coordinator run as processes."""
from __future__ import annotations

import os

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tests.cluster_tasks import say
from tests.harness import wait_until
from tf1ps.coordinator import ClusterCoordinator

EXAMPLES = 400


def serve(jobs, job, index):
  """Serves until the coordinator has ended."""
  server = tf1ps.Server(jobs, job, index, heartbeat_timeout=10.0)
  server.join(exit=False)
  say("ended:", server.end_reason)


def count_updates(iterator):
  """Builds a step that adds 1, drawn on the worker, to each of two variables on two ps."""
  one = iterator.get_next()
  first = tf.get_variable("first", [], tf.int64, initializer=tf.zeros_initializer())
  second = tf.get_variable("second", [], tf.int64, initializer=tf.zeros_initializer())
  step = tf.train.get_or_create_global_step()
  with tf.control_dependencies([tf.assign_add(first, one), tf.assign_add(second, one)]):
    return tf.assign_add(step, 1)


def count_examples(begin, end):
  """Builds an evaluation of a range of examples: how many there are, and the sum of them."""
  examples = tf.range(begin, end)
  return tf.size(examples), tf.reduce_sum(examples)


def coordinate(jobs, steps, kills, checkpoint_dir=None, heartbeat_timeout=20.0):
  """Runs steps, then evaluates each example once, by ranges of 7.

  Args:
    jobs: {job: addresses}.
    steps: the number of steps.
    kills: (number of a step, file) pairs: the step waits until the file exists.
    checkpoint_dir: where it saves every second.
    heartbeat_timeout: seconds until a silent ps is lost.
  """
  kills = dict(kills)
  server = tf1ps.Server(jobs, "chief", 0, heartbeat_timeout=heartbeat_timeout)
  with ClusterCoordinator(server, checkpoint_dir, save_checkpoint_secs=1.0) as coordinator:
    coordinator.build(count_examples, (np.int64(0), np.int64(7)))
    ones = iter(coordinator.create_per_worker_dataset(
      lambda: tf.data.Dataset.from_tensors(np.int64(1)).repeat()))
    results = []
    for number in range(steps):
      if number in kills:
        wait_until(lambda path=kills[number]: os.path.exists(path), what="a restarted worker")
      results.append(coordinator.schedule(count_updates, (ones,)))
      if number % 50 == 0:
        results[-1].fetch(60)
        say("step", number, coordinator.completed)
    coordinator.join(60)
    values = coordinator.fetch(results)
    say("updates", max(values), "of", len(values), "retries", coordinator.retries, "lost",
        coordinator.lost_updates, coordinator.completed)
    parts = coordinator.fetch([
      coordinator.schedule(count_examples, (np.int64(begin), np.int64(min(begin + 7, EXAMPLES))))
      for begin in range(0, EXAMPLES, 7)])
    say("examples", sum(int(count) for count, _ in parts), sum(int(total) for _, total in parts))
