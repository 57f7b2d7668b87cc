"""Compares the records per second of tf.data and of the classic queue pipeline, on CSV files.

    python -m benchmarks.input_csv [--rounds=5] [--seconds=2] [--records=80000] [--batch_size=128]

The files, of 28 columns of floats, are written into a temporary folder. Each kind of pipeline reads
them repeatedly, shuffles (with the same buffer) and makes batches, in a separate graph and session.
The rounds are interleaved, so that other load on the machine affects all kinds equally. For each
kind it prints the median of the rounds in records per second, the smallest and the largest rate,
the ratio of the median to the classic pipeline's median, and the processor time per record in all
threads. If other programs run, the processor time tells more than the rate.
"""
from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from absl import app, flags  # noqa: E402

from benchmarks import rows as rows_lib  # noqa: E402
from tf1ps.pipeline import Shard, iterator_initializers, text_line_dataset  # noqa: E402

flags.DEFINE_integer("rounds", 5, "Rounds of each kind.")
flags.DEFINE_float("seconds", 2.0, "Seconds of each round.")
flags.DEFINE_integer("records", 80000, "Records in all files.")
flags.DEFINE_integer("batch_size", 128, "Records in a batch.")
flags.DEFINE_integer("shuffle", 10000, "Records that wait to be shuffled.")
flags.DEFINE_list("kinds", [], "Only these kinds, and the classic one.")
flags.DEFINE_string("json", "", "A file for the rows.")
FLAGS = flags.FLAGS

_FIRST = 0.2  # seconds of a round that are not counted
COLUMNS = 28
FILES = 4


def write_files(folder, records):
  """Writes the files, each with the same number of records; returns their names."""
  names = [os.path.join(folder, "%d.csv" % number) for number in range(FILES)]
  random = np.random.RandomState(1)
  for name in names:
    np.savetxt(name, random.randn(records // FILES, COLUMNS), fmt="%.4f", delimiter=",")
  return names


def decode(lines):
  """Returns one line or many lines as floats."""
  return tf.stack(tf.io.decode_csv(lines, [[0.0]] * COLUMNS), axis=-1)


def classic(names, threads):
  """The classic pipeline: record by record."""
  queue = tf.train.string_input_producer(names)
  _, line = tf.TextLineReader().read(queue)
  return tf.train.shuffle_batch(
    [decode(line)], FLAGS.batch_size, FLAGS.shuffle + 3 * FLAGS.batch_size, FLAGS.shuffle,
    num_threads=threads)


def by_datasets(names):
  """The pipeline of tf1ps, which uses tf.data."""
  return text_line_dataset(
    Shard(batch_size=FLAGS.batch_size), names, decode, shuffle=FLAGS.shuffle)


def by_data(names, batch_first):
  """tf.data by hand, decoded by batch or by record."""
  lines = tf.data.TextLineDataset(names).repeat().shuffle(FLAGS.shuffle)
  if batch_first:
    records = lines.batch(FLAGS.batch_size).map(decode)
  else:
    records = lines.map(decode).batch(FLAGS.batch_size)
  return tf.data.make_one_shot_iterator(records.prefetch(2)).get_next()


def kinds():
  """Returns the kinds of pipelines by name: functions of the files' names that build a batch."""
  found = {
    "classic": lambda names: classic(names, 1),
    "classic, 4 threads": lambda names: classic(names, 4),
    "tf.data, map then batch": lambda names: by_data(names, False),
    "tf.data, batch then map": lambda names: by_data(names, True),
    "datasets": by_datasets,
  }
  chosen = FLAGS.kinds
  return {name: make for name, make in found.items() if not chosen or name in ["classic"] + chosen}


class Source:
  """A pipeline that runs from the beginning to the end of the benchmark."""

  def __init__(self, make, names):
    with tf.Graph().as_default():
      batch = make(names)
      initialise = [tf.local_variables_initializer(), tf.tables_initializer()]
      # By default, two sessions of one process share their threads.
      self._session = tf.Session(config=tf.ConfigProto(use_per_session_threads=True))
      self._session.run(initialise)
      self._session.run(iterator_initializers(self._session.graph))
      self._coordinator = tf.train.Coordinator()
      self._threads = tf.train.start_queue_runners(self._session, self._coordinator)
    self._next = self._session.make_callable(batch)

  def measure(self, seconds):
    """Returns the records per second, and the processor time per record in microseconds."""
    began = time.perf_counter()
    while time.perf_counter() - began < _FIRST:  # batches that have waited since the last round
      self._next()
    count, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
      count += len(self._next())
    return (count / (time.perf_counter() - began), 1e6 * (time.process_time() - used) / count)

  def close(self):
    """Ends its threads and its session."""
    self._coordinator.request_stop()
    self._coordinator.join(self._threads, stop_grace_period_secs=30, ignore_live_threads=True)
    self._session.close()


def compare(sources):
  """Returns the measurements of each source in each round, by name."""
  found = {name: [] for name in sources}
  for source in sources.values():
    source.measure(0.3)
  for _ in range(FLAGS.rounds):
    for name, source in sources.items():
      found[name].append(source.measure(FLAGS.seconds))
  return found


def report(found):
  """Prints a line for each kind; returns rows, whose steps are batches."""
  rates = {name: [rate for rate, _ in rounds] for name, rounds in found.items()}
  base = statistics.median(rates["classic"])
  for name, rounds in found.items():
    median = statistics.median(rates[name])
    print("%-24s %9.0f records/s (%7.0f to %7.0f)  %6.1f x  %7.1f us of processor a record" % (
      name, median, min(rates[name]), max(rates[name]), median / base,
      statistics.median(used for _, used in rounds)))
  return [rows_lib.row(
    "csv", "none", name, "batch_size=%d" % FLAGS.batch_size,
    [rate / FLAGS.batch_size for rate in rates[name]], statistics.median(rates[name]) / base,
    {"worker": statistics.median(used for _, used in rounds) * FLAGS.batch_size / 1000, "ps": 0.0})
          for name, rounds in found.items()]


def main(argv):
  """Runs the comparison."""
  del argv
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  print("TensorFlow %s, %d records of %d floats, batches of %d, %d wait to be shuffled" % (
    tf.__version__, FLAGS.records, COLUMNS, FLAGS.batch_size, FLAGS.shuffle))
  sources = {}
  with tempfile.TemporaryDirectory() as folder:
    names = write_files(folder, FLAGS.records)
    try:
      for name, make in kinds().items():
        sources[name] = Source(make, names)
      made = report(compare(sources))
    finally:
      for source in sources.values():
        source.close()
  if FLAGS.json:
    rows_lib.write(FLAGS.json, made)


if __name__ == "__main__":
  app.run(main)
