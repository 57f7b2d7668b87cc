"""The tasks of when_not_to_parallelise.py: a ps, and workers that train on command."""

import contextlib
import multiprocessing
import time

import tensorflow.compat.v1 as tf

ONE_THREAD = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
BATCHES = [100, 2000]


def build_steps():
  """Returns a train op for each batch size: a softmax 64-10, on examples that are drawn anew."""
  train_ops = {}
  for size in BATCHES:
    with tf.variable_scope("batch_%d" % size):
      x = tf.random_uniform([size, 64])
      digits = tf.argmax(x[:, :10], 1)
      logits = tf.matmul(x, tf.get_variable("w", [64, 10])) + tf.get_variable("b", [10])
      loss = tf.losses.sparse_softmax_cross_entropy(digits, logits)
      train_ops[size] = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
  return train_ops


def steps_a_second(session, train_op, seconds):
  """Trains for so many seconds, and a step more."""
  step = session.make_callable(train_op)
  step()
  steps, begin = 0, time.monotonic()
  while time.monotonic() < begin + seconds:
    step()
    steps += 1
  return steps / (time.monotonic() - begin)


def be_a_task(hosts, job, index, connection, held):
  """Is the ps, or a worker that trains on command; until the connection is closed."""
  for end in held:  # copies of the other process' ends, which would stay open with this one
    end.close()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  worker = "/job:worker/task:%d" % index
  server = tf.train.Server(cluster, job, index, config=ONE_THREAD)
  if job == "ps":
    connection.send("there")
    with contextlib.suppress(EOFError):
      connection.recv()
    return
  with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
    train_ops = build_steps()
  with contextlib.suppress(EOFError), tf.Session(  # tf1ps-doctor: ignore[session-without-limit]
      server.target, config=tf.ConfigProto(device_filters=["/job:ps", worker])) as session:
    if index == 0:
      initialise = tf.global_variables_initializer()
      session.run(initialise)  # tf1ps-doctor: ignore[chief-restart-goes-back]
    connection.send("there")
    while True:
      size, seconds = connection.recv()
      connection.send(steps_a_second(session, train_ops[size], seconds))


def answer(connection, limit=60.0):
  """Returns the next message of a task within a limit in seconds; EOFError: it has failed."""
  if not connection.poll(limit):
    raise RuntimeError("a task has not answered within %g s" % limit)
  return connection.recv()


def start_tasks(hosts, stack):
  """Forks the ps and the workers; returns the connections to the workers."""
  fork, held = multiprocessing.get_context("fork"), []
  for job, index in [("ps", 0)] + [("worker", index) for index in range(len(hosts) - 1)]:
    here, there = fork.Pipe()
    held.append(here)
    task = fork.Process(target=be_a_task, args=(hosts, job, index, there, held),
                        daemon=True)
    task.start()
    stack.callback(task.join, 30.0)
    stack.callback(here.close)
    there.close()
    answer(here)
  return held[1:]
