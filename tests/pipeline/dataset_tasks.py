"""A trainer with a dataset of its own, for tests to run as the processes of a cluster."""
from __future__ import annotations

import logging
import os
import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness


def serve(jobs):
  """The ps."""
  server = tf1ps.Server(jobs, job_name="ps", task_index=0, heartbeat_timeout=60.0)
  print("up", flush=True)
  server.join()


def train(jobs, index, options):
  """A worker; prints the elements that each step has seen, as `saw GLOBAL_STEP: ELEMENTS`.

  Args:
    jobs: {job: addresses}.
    index: of the worker.
    options: steps (the last global step), batch, and optionally checkpoint_dir, save_steps,
      hold_after (own steps until the file `go` is waited for), go.
  """
  logging.basicConfig(stream=sys.stdout, format="%(message)s")
  logging.getLogger("tf1ps").setLevel(logging.INFO)
  tf.disable_v2_behavior()
  server = tf1ps.Server(jobs, job_name="worker", task_index=index, heartbeat_timeout=60.0)
  with tf.device(tf1ps.replica_device_setter(
      worker_device="/job:worker/task:%d" % index, cluster=jobs)):
    elements = _elements(index, options["batch"])
    seen = tf.get_variable("seen", [], tf.int64, initializer=tf.zeros_initializer(),
                           use_resource=True)
    with tf.control_dependencies([seen.assign_add(tf.reduce_sum(elements))]):
      step = tf.train.get_or_create_global_step().assign_add(1)
    fetches = [step, elements]
  on_ps = [op.name for op in tf.get_default_graph().get_operations() if "ps" in op.device and (
    "Iterator" in op.type or "Dataset" in op.type)]
  print("on the ps: %s" % on_ps, flush=True)
  done = 0
  with tf1ps.MonitoredTrainingSession(
      server.target, index == 0, options.get("checkpoint_dir"),
      save_checkpoint_steps=options.get("save_steps", 10 ** 6), save_summaries_steps=None,
      hooks=[tf.train.StopAtStepHook(last_step=options["steps"])]) as session:
    while not session.should_stop():
      if done == options.get("hold_after"):
        print("holds", flush=True)
        harness.wait_until(lambda: os.path.exists(options["go"]))
      number, batch = session.run(fetches)
      done += 1
      print("saw %d: %s" % (number, batch.tolist()), flush=True)


def _elements(index, batch):
  dataset = tf.data.Dataset.range(1000 * index, 1000 * index + 100)
  dataset = dataset.map(lambda x: x).repeat().batch(batch).prefetch(1)
  return tf.data.make_initializable_iterator(dataset).get_next()


def seen(task):
  """What the steps of a worker have seen so far, one list for each."""
  return [[int(number) for number in line.partition(": ")[2][1:-1].split(",")]
          for line in list(task.lines) if line.startswith("saw ")]
