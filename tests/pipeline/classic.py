"""Classic input pipelines for tests: a file of records "n,n", one line each, read by runners."""
from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf


def write(path, count, bad=(), first=1):
  """Writes lines "n,n" for n from `first`; those of the numbers `bad` have no second number."""
  numbers = range(first, first + count)
  path.write_text("".join("%d,%s\n" % (n, "x" if n in bad else n) for n in numbers))
  return str(path)


def pipeline(files, batch_size=1, read_up_to=0, threads=1, num_epochs=1, capacity=100,
             shuffle=False):
  """Builds a classic pipeline in the default graph; returns the first numbers of a batch."""
  names = tf.train.string_input_producer(files, num_epochs=num_epochs, shuffle=False)
  reader = tf.TextLineReader()
  _, lines = reader.read_up_to(names, read_up_to) if read_up_to else reader.read(names)
  columns = tf.decode_csv(lines, [[0], [0]])
  if shuffle:
    return tf.train.shuffle_batch(columns, batch_size, capacity, capacity // 2,
                                  num_threads=threads, enqueue_many=bool(read_up_to))[0]
  return tf.train.batch(columns, batch_size, num_threads=threads, capacity=capacity,
                        enqueue_many=bool(read_up_to), allow_smaller_final_batch=True)[0]


def initialised():
  """A session of the default graph whose local variables are initialised."""
  session = tf.Session()
  session.run(tf.local_variables_initializer())
  return session


def take_all(session, batch, coord=None):
  """Runs a batch until an error comes; returns all numbers and the error."""
  found = []
  try:
    while coord is None or not coord.should_stop():
      found += session.run(batch).tolist()
  except Exception as error:
    return found, error
  return found, None


class Stuck(object):
  """A function in Python that a runner's thread calls and that returns when the test lets it."""

  def __init__(self):
    self.entered, self.leave = threading.Event(), threading.Event()
    self.has_left = False

  def __call__(self, value):
    self.entered.set()
    self.leave.wait(60)
    self.has_left = True
    return value
