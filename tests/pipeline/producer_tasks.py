"""The tasks of producers_test.py: a ps, and workers that read the same lines under one setter."""
from __future__ import annotations

import os

import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.pipeline import producers

MODULES = {"stock": tf.train, "ours": producers}


def work(jobs, index, module, path, go):
  """Reads all lines twice, with TensorFlow's setter, once there is a file of the name `go`."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", index)
  device = "/job:worker/task:%d" % index
  with tf.Graph().as_default(), tf.device(
      tf.train.replica_device_setter(cluster=jobs, worker_device=device)):
    train = MODULES[module]
    names = train.string_input_producer([path], num_epochs=2, shuffle=False)
    _, line = tf.TextLineReader().read(names)
    lines = train.batch([line], 4, allow_smaller_final_batch=True)
    init = tf.local_variables_initializer()
    config = tf.ConfigProto(device_filters=["/job:ps", device])
    with tf.Session(server.target, config=config) as session:
      session.run(init)
      cluster_tasks.say("initialised")
      harness.wait_until(lambda: os.path.exists(go), what="the others' initialisation")
      coordinator = tf.train.Coordinator()
      threads = tf.train.start_queue_runners(session, coordinator)
      count = 0
      try:
        while True:
          count += len(session.run(lines))
      except tf.errors.OutOfRangeError:
        pass
      coordinator.request_stop()
      coordinator.join(threads)
  cluster_tasks.say("read", count)
