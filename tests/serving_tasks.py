"""Processes of tests that serve: an in-graph job of the classic kind, and a client of SavedModels.

In the job one worker is the client, the others only serve.
"""
from __future__ import annotations

import json

import tensorflow.compat.v1 as tf

import tf1ps


def serve(cluster, job, index):
  """Joins until the job has ended."""
  tf.disable_v2_behavior()
  server = tf1ps.Server(cluster, job_name=job, task_index=index, heartbeat_timeout=15.0)
  server.join(exit=False)
  print("served: " + server.end_reason)
  return 0


def train_on_both(cluster, steps):
  """Worker 0: one graph with an addend on each worker."""
  tf.disable_v2_behavior()
  server = tf1ps.Server(cluster, job_name="worker", task_index=0, heartbeat_timeout=15.0)
  with tf.device("/job:ps/task:0"):
    total = tf.get_variable("total", [], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
  addends = []
  for index in range(2):
    with tf.device("/job:worker/task:%d" % index):
      addends.append(tf.identity(tf.random_uniform([], index + 1, index + 1.0001), name="addend"))
  with tf.device("/job:ps/task:0"):
    added = tf.assign_add(total, addends[0] + addends[1])
    with tf.control_dependencies([added]):
      train_op = tf.assign_add(step, 1)
  hooks = [tf.train.StopAtStepHook(last_step=steps)]
  with tf1ps.MonitoredTrainingSession(master=server.target, hooks=hooks) as session:
    while not session.should_stop():
      value, _ = session.run([added, train_op])
  print("total %.1f" % value)
  return 0


def ask_saved_models(models):
  """Asks models, each (name of the input, path), for x = 0 to 9, as a TensorFlow 2 program does."""
  import tensorflow  # as 2.x itself, not as compat.v1

  assert tf.executing_eagerly()
  for name, path in models:
    serve = tensorflow.saved_model.load(path).signatures["serving_default"]
    outputs = serve(**{name: tf.range(10.)})
    print(json.dumps({key: value.numpy().tolist() for key, value in outputs.items()}))
