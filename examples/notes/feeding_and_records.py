"""Feeding and TFRecordDataset give the same batches; what loading while training gains.

Example N4.
Mechanism: the same examples, once as arrays that the client feeds, and once as records of a file
that operations read, parse and batch. Fed batches pass through the client, and travel to a distant
worker with each step. A file is read by the task that runs the operation.
Then loading takes 30 ms per batch, and a step as long. Without `prefetch` a step waits for its
batch: 60 ms. With `prefetch(1)` the next batch is loaded during the step: 30 ms and a little. The
gain is at most the shorter one of the two times. Both only sleep here, so that a busy machine shows
it, too. If loading and training want the same cores, there is less to gain.
TensorFlow 2 adds a prefetch of its own to a dataset that ends without one. So the first form takes
30 ms there as well, until you turn the option `inject_prefetch` off.
Toolkit: bare TensorFlow. (Programs get their data from `input_fn`, docs/data.md.)

    $ python examples/notes/feeding_and_records.py
    fed: [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5], [3.0]]
    read: [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5], [3.0]]
    without overlap ... ms per step, with it ... ms
    overlap saves more than a quarter: True
"""

import os
import sys
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

VALUES = np.arange(7, dtype=np.float32) / 2
SECONDS = 0.03  # that loading takes, and a step
STEPS = 20


def write_records(path):
  """Writes an Example for each value."""
  with tf.python_io.TFRecordWriter(path) as writer:
    for value in VALUES:
      feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
      example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
      writer.write(example.SerializeToString())


def fed_batches():
  """Batches of three, by way of the client."""
  x = tf.placeholder(tf.float32, [None])
  with tf.Session() as session:
    return [session.run(tf.identity(x), {x: VALUES[begin:begin + 3]}).tolist()
            for begin in range(0, len(VALUES), 3)]


def read_batches(path):
  """Batches of three, by operations."""
  def parse(records):
    return tf.parse_example(records, {"x": tf.FixedLenFeature([], tf.float32)})["x"]

  dataset = tf.data.TFRecordDataset(path).batch(3).map(parse)
  x = tf.data.make_one_shot_iterator(dataset).get_next()
  found = []
  with tf.Session() as session:
    while True:
      try:
        found.append(session.run(x).tolist())
      except tf.errors.OutOfRangeError:
        return found


def slow(value):
  """Takes its time."""
  time.sleep(SECONDS)
  return value


def seconds_a_step(overlap):
  """Loads and trains; returns the median time of a step."""
  dataset = tf.data.Dataset.range(STEPS + 2).map(lambda i: tf.numpy_function(slow, [i], tf.int64))
  if overlap:
    dataset = dataset.prefetch(1)
  else:
    options = tf.data.Options()
    if hasattr(options.experimental_optimization, "inject_prefetch"):  # not on 1.15
      options.experimental_optimization.inject_prefetch = False
    dataset = dataset.with_options(options)
  batch = tf.data.make_one_shot_iterator(dataset).get_next()
  times = []
  with tf.Session() as session:
    for _ in range(STEPS):
      begin = time.monotonic()
      slow(session.run(batch))  # in the place of a training step
      times.append(time.monotonic() - begin)
  return np.median(times)


def compare(path):
  """Compares both inputs, then both ways to load."""
  tf.disable_v2_behavior()
  write_records(path)
  print("fed:", fed_batches())
  print("read:", read_batches(path))
  alone, together = seconds_a_step(overlap=False), seconds_a_step(overlap=True)
  print("without overlap %.0f ms per step, with it %.0f ms" % (1e3 * alone, 1e3 * together))
  print("overlap saves more than a quarter:", bool(together < 0.75 * alone))


def main():
  """Uses the file that is given, or a temporary one."""
  if len(sys.argv) == 1:  # in a folder that is removed afterwards
    with tempfile.TemporaryDirectory() as folder:
      return compare(os.path.join(folder, "examples.tfrecord"))
  return compare(sys.argv[1])


if __name__ == "__main__":
  main()
