"""A worker that trains small networks on real ps, and says what its steps have sent."""
from __future__ import annotations

import json

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks
from tests.transfer import kernel_counters
from tf1ps.transfer import packed_optimizer, step_trace, traffic

BATCH = 20
OPTIMIZERS = {
  "sgd": lambda: tf.train.GradientDescentOptimizer(0.01),
  "adam": lambda: tf.train.AdamOptimizer(0.01),
  "float16": lambda: packed_optimizer.PackedOptimizer(
    tf.train.GradientDescentOptimizer(0.01), pack_bytes=0, wire_dtype="float16"),
}


def network(jobs, use_resource, optimizer, units=300, layers=2):
  """Layers of `units`; returns the train op and the loss."""
  with tf.device(tf1ps.replica_device_setter(
      cluster=jobs, worker_device="/job:worker/task:0")):
    step = tf.train.get_or_create_global_step()
    outputs = tf.placeholder(tf.float32, [None, units], "inputs")
    with tf.variable_scope("layers", use_resource=use_resource):
      for i in range(layers):
        weights = tf.get_variable("w%d" % i, [units, units])
        outputs = tf.tanh(tf.matmul(outputs, weights) + tf.get_variable("b%d" % i, [units]))
    loss = tf.reduce_mean(tf.square(outputs))
    return OPTIMIZERS[optimizer]().minimize(loss, step), loss


def train(jobs, runs, steps, traces):
  """Trains each of [(use_resource, optimizer), ...] for `steps` steps; says what each has sent.

  A line for each: {"graph": messages, "trace": messages, "kernel": bytes {"down", "up"}}. Of so
  many traced steps that with the most messages counts; of none there is no message.
  """
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  for use_resource, optimizer in runs:
    with tf.Graph().as_default():
      fetches = network(jobs, use_resource, optimizer)
      feed = {"inputs:0": np.ones([BATCH, 300])}
      with tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
          session.run(fetches, feed)
        before = _carried(jobs)
        for _ in range(steps):
          session.run(fetches, feed)
        after = _carried(jobs)
        traced = max((_trace(session, fetches, feed) for _ in range(traces)),
                     key=len, default=[])
      cluster_tasks.say(json.dumps({
        "graph": traffic.report_traffic(fetches, batch=BATCH).messages, "trace": traced,
        "kernel": {way: (after[way] - before[way]) / steps for way in ("down", "up")}}))
  cluster_tasks.stay()


def _trace(session, fetches, feed):
  metadata = tf.RunMetadata()
  session.run(fetches, feed, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
  return step_trace.sent_messages(step_trace.read_trace(metadata)).messages


def _carried(jobs):
  """The bytes that came down and went up so far, whichever end opened the connection."""
  ports = {job: [int(address.rsplit(":", 1)[1]) for address in jobs[job]] for job in jobs}
  counts = kernel_counters.carried(ports["ps"] + ports["worker"])
  at_ps, at_workers = ([counts[port] for port in ports[job]] for job in ("ps", "worker"))
  return {"up": sum(c[0] for c in at_ps) + sum(c[1] for c in at_workers),
          "down": sum(c[1] for c in at_ps) + sum(c[0] for c in at_workers)}
