"""What the tests of barriers and done queues run as processes: members, and a ps that ends."""
from __future__ import annotations

import json
import time

import tensorflow.compat.v1 as tf

import tf1ps
from tests.cluster_tasks import say
from tf1ps.state import barrier, done_queues


def meet(target, name, num_tasks, index, rounds, timeout):
  """A member that waits again and again; says the round, when it came and went, and the order."""
  with tf.Graph().as_default():
    one = barrier.Barrier(name, num_tasks, index, device="/job:ps/task:0")
    with tf.Session(target) as session:
      while one.rounds < rounds:
        came = time.monotonic()
        try:
          order = one.wait(session, timeout)
        except barrier.BarrierTimeout as error:
          say("missing", error.missing, "in", one.rounds)
          continue
        say("passed", json.dumps([one.rounds, came, time.monotonic(), order]))


def end_when_done(jobs, index, num_workers):
  """A ps with a loop of its own, which ends when all workers are done."""
  server = tf1ps.Server(jobs, "ps", index)
  own = "/job:ps/task:%d" % index
  with tf.Graph().as_default():
    queues = done_queues.DoneQueues(num_workers, places=[own])
    # It waits for nobody else: a session begins when all that its filters name are there.
    config = tf.ConfigProto(device_filters=[own])
    with tf.Session(server.target, config=config) as session:
      say("waits")
      say("ps %d: %s" % (index, queues.wait(session, timeout=60.0)))
