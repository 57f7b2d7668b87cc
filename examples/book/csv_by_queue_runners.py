"""The same pipeline in threads: a QueueRunner fills the queue while the main thread trains.

Examples B25, B26. Section: data.
Mechanism: a QueueRunner has a thread for each of its operations; a Coordinator ends them all.
1. One reader, five threads: the runner has the same operation five times.
2. Five readers, five threads: a function builds a reader and returns its operation. The readers
   read files at the same time. So the order of the rows changes, and the example sorts them.
3. Many lines at once: read_up_to takes many lines of a file, decode_csv decodes them together, and
   enqueue_many puts them in. A pipeline of short lines is many times as fast.

A thread stops at the end of the file names. The last thread closes the queue, and the loop gets its
OutOfRangeError after all examples. `coord.join` raises the error of a thread.
This is late: after a line that cannot be decoded the loop just ends, it may miss examples that were
read, and only `join` raises the reason. With tf1ps' start_queue_runners the loop gets every example
before the bad line, and then the error with the file and the line.
Toolkit: bare TensorFlow, and tf1ps, whose Coordinator and start_queue_runners take the same
arguments. So `read` gets `toolkit=tf.train` or `toolkit=tf1ps`, and is otherwise the same
(docs/data.md, "Queue runners").

    $ python examples/book/csv_by_queue_runners.py
    one reader, five threads: 6 examples, the same rows: True, no exception
    five readers: 6 examples, the same rows: True, no exception
    many lines at once: 6 examples, the same rows: True, no exception
    a bad line, TensorFlow: ... examples, then InvalidArgumentError from join
    a bad line, tf1ps: 2 examples, then InvalidArgumentError from the loop: bad.csv:4: Field 1 ...
"""

import os
import tempfile

import tensorflow.compat.v1 as tf

import tf1ps

FILES = {
  "a.csv": ["x1,x2,target", "1,2,0", "3,4,1", "5,6,0"],
  "b.csv": ["x1,x2,target", "7,8,1", "9,10,0", "11,12,1"],
  "bad.csv": ["x1,x2,target", "1,2,0", "3,4,1", "5,six,0"],
}
ROWS = [([float(2 * n + 1), float(2 * n + 2)], n % 2) for n in range(6)]


def put_example(names, examples):
  """Builds a reader; returns the operation that moves one line into the queue of examples."""
  _, line = tf.TextLineReader(skip_header_lines=1).read(names)
  x1, x2, target = tf.io.decode_csv(line, [[0.0], [0.0], [0]])
  return examples.enqueue([tf.stack([x1, x2]), target])


def put_examples(names, examples):
  """Builds a reader; returns the operation that moves many lines into the queue of examples."""
  _, lines = tf.TextLineReader(skip_header_lines=1).read_up_to(names, 1000)
  x1, x2, target = tf.io.decode_csv(lines, [[0.0], [0.0], [0]])
  return examples.enqueue_many([tf.stack([x1, x2], axis=1), target])


def build(files, readers, threads, put):
  """Builds the pipeline; returns a batch, and two operations: fill and close the names."""
  names = tf.queue.FIFOQueue(10, [tf.string], [[]])
  examples = tf.queue.RandomShuffleQueue(10, 2, [tf.float32, tf.int32], [[2], []])
  puts = [put(names, examples) for _ in range(readers)]
  tf.train.add_queue_runner(tf.train.QueueRunner(examples, puts * (threads // readers)))
  return examples.dequeue_up_to(2), names.enqueue_many([files]), names.close()


def read(files, readers, threads, put=put_example, toolkit=tf.train):
  """Reads files; returns (rows, the error or None, the place that raised it).

  toolkit: the module of Coordinator and start_queue_runners, tf.train or tf1ps.
  """
  with tf.Graph().as_default(), tf.Session() as session:
    batch, put_names, close_names = build(files, readers, threads, put)
    session.run(put_names)
    session.run(close_names)
    coord = toolkit.Coordinator()
    runner_threads = toolkit.start_queue_runners(session, coord)
    rows, error, where = [], None, None
    try:
      while not coord.should_stop():
        x, target = session.run(batch)
        rows += zip(x.tolist(), target.tolist())
    except tf.errors.OutOfRangeError:
      pass
    except tf.errors.InvalidArgumentError as caught:
      error, where = caught, "the loop"
    coord.request_stop()
    try:
      coord.join(runner_threads)
    except tf.errors.InvalidArgumentError as caught:
      if error is None:
        error, where = caught, "join"
    return sorted(rows), error, where


def main():
  """Writes small files, and reads them in five ways."""
  tf.disable_v2_behavior()
  with tempfile.TemporaryDirectory() as folder:
    paths = {}
    for name, lines in FILES.items():
      paths[name] = os.path.join(folder, name)
      with open(paths[name], "w") as file:
        file.write("\n".join(lines) + "\n")
    good, bad = [paths["a.csv"], paths["b.csv"]], [paths["bad.csv"]]
    for title, readers, threads, put in (
        ("one reader, five threads", 1, 5, put_example), ("five readers", 5, 5, put_example),
        ("many lines at once", 1, 1, put_examples)):
      rows, error, _ = read(good, readers, threads, put)
      print("%s: %d examples, the same rows: %s, %s" % (
        title, len(rows), rows == ROWS, error or "no exception"))
    rows, error, where = read(bad, readers=1, threads=1)
    print("a bad line, TensorFlow: %d examples, then %s from %s" % (
      len(rows), type(error).__name__, where))
    rows, error, where = read(bad, readers=1, threads=1, toolkit=tf1ps)
    place = error.message.partition(folder + os.sep)[2].splitlines()[0]
    print("a bad line, tf1ps: %d examples, then %s from %s: %s" % (
      len(rows), type(error).__name__, where, place))


if __name__ == "__main__":
  main()
