"""The functions that the processes of a job run: its ps, its workers, and clients of a queue.

`tf1ps` runs the programs tf1ps-ps and tf1ps-worker. `stock` runs the same model as TensorFlow's own
documents do it, as the control that must fail.
"""

from __future__ import annotations

import itertools
import os
import threading
import time

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cli import ps, worker
from tf1ps.state import QueueEmpty
from tools.chaos import breaks, network, program, worlds
from tools.chaos.plan import NUM_WORKERS

RESTART = 3  # the exit code of a client that asks to be started again
_TAKE = 4  # elements that a consumer asks for
_PUT_LIMIT, _GET_LIMIT = 20.0, 1.0  # seconds
_SHARED = dict(shared_name="chaos")


def run_tf1ps_ps(settings, argv):
  """tf1ps-ps."""
  _enter(settings)
  program.begin(settings)
  return ps.run(argv)


def run_tf1ps_worker(settings, argv):
  """tf1ps-worker."""
  _enter(settings)
  program.begin(settings)
  program.record_checkpoints()
  breaks.apply(settings.breaks)
  return worker.run(argv)


def run_stock_ps(settings, cluster):
  """A ps as in TensorFlow's documents."""
  _enter(settings)
  program.begin(settings)
  tf.train.Server(cluster, "ps", settings.index).join()


def run_stock_worker(settings, cluster, save_secs):
  """A worker as in TensorFlow's documents."""
  _enter(settings)
  program.begin(settings)
  program.record_checkpoints()
  tf.disable_v2_behavior()
  server = tf.train.Server(cluster, "worker", settings.index)
  is_chief, hooks = settings.index == 0, []
  with tf.device(tf.train.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % settings.index)):
    rows = tf.data.Dataset.range(settings.examples).shard(NUM_WORKERS, settings.index)
    ids = program.drawn(tf.data.make_one_shot_iterator(rows.batch(program.BATCH)).get_next())
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    if settings.mode == "sync":
      optimizer = tf.train.SyncReplicasOptimizer(optimizer, NUM_WORKERS)
      hooks = [optimizer.make_session_run_hook(is_chief)]
    step = tf.train.get_or_create_global_step()
    train_op = optimizer.minimize(program.make_loss(ids), global_step=step)
  with tf.train.MonitoredTrainingSession(
      server.target, is_chief, settings.checkpoint_dir, hooks=[*hooks, program.Recorder(ids)],
      save_checkpoint_secs=save_secs) as session:
    while not session.should_stop():
      session.run(train_op)


def run_client(settings, address, kind):
  """A producer or a consumer of a queue on ps 0; returns the exit code."""
  _enter(settings)
  writer = program.begin(settings)
  tf.disable_v2_behavior()
  make = _StockQueue if kind == "stock" else _Queue
  act = _produce if settings.task.startswith("producer") else _consume
  with tf.Graph().as_default():
    queue = make()
    config = tf.ConfigProto(device_filters=["/job:ps/task:0"])
    session = tf.Session("grpc://" + address, config=config)
    try:
      act(settings, writer, lambda *args: queue.put(session, *args),
          lambda *args: queue.get(session, *args))
      return 0
    except Exception as error:
      writer.write("queue_error", error="%s: %s" % (type(error).__name__, str(error)[:300]))
      return RESTART  # at once: with a dead ps, close may hang


class _Queue:
  """The queue of tf1ps."""

  def __init__(self):
    self._queue = tf1ps.FIFOQueue(100000, [tf.int64], [[]], container="chaos",
                                  device="/job:ps/task:0", **_SHARED)

  def put(self, session, ids):
    self._queue.put(session, ids, timeout=_PUT_LIMIT, many=True)

  def get(self, session, count):
    try:
      return self._queue.get(session, count, up_to=True, timeout=_GET_LIMIT).tolist()
    except QueueEmpty:
      return []


class _StockQueue:
  """TensorFlow's queue, with a timeout per run."""

  def __init__(self):
    with tf.device("/job:ps/task:0"):
      queue = tf.queue.FIFOQueue(100000, [tf.int64], [[]], **_SHARED)
    self._ids = tf.placeholder(tf.int64, [None])
    self._enqueue, self._dequeue = queue.enqueue_many(self._ids), queue.dequeue_many(_TAKE)

  def put(self, session, ids):
    session.run(self._enqueue, {self._ids: ids},
                tf.RunOptions(timeout_in_ms=int(1000 * _PUT_LIMIT)))

  def get(self, session, count):
    try:
      return session.run(self._dequeue, options=tf.RunOptions(
        timeout_in_ms=int(1000 * _GET_LIMIT))).tolist()
    except tf.errors.DeadlineExceededError:
      return []


def _produce(settings, writer, put, unused_get):
  pause, first = threading.Event(), int(time.monotonic() * 1000) * 1000
  numbers = itertools.count(first)
  for count in itertools.cycle([1, 3, 2]):
    if os.path.exists(settings.stop):
      return
    ids = list(itertools.islice(numbers, count))
    writer.write("put_try", ids=ids)
    put(ids)
    writer.write("put_ack", ids=ids)
    pause.wait(0.1)


def _consume(settings, writer, unused_put, get):
  while True:
    is_over = os.path.exists(settings.stop + ".drain")
    writer.write("get_try", count=_TAKE)
    ids = get(_TAKE)
    writer.write("get_ack", ids=ids)
    if is_over and not ids:
      return


def _enter(settings):
  if settings.namespace:
    network.enter(settings.namespace)
  worlds.enter(settings.place)
