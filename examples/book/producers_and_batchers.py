"""The four producers and the four batchers of the old input pipeline.

Example B32. Section: data.
Mechanism: a producer fills a queue with names, numbers or slices. A batcher makes batches from one
pipeline, and a `_join` batcher from several. Behind each stands a queue runner, which fills its
queue in threads. So call `tf.train.start_queue_runners`, or no element ever arrives. With
num_epochs also run `tf.local_variables_initializer`, since a local variable counts the epochs. All
eight are deprecated in favour of tf.data, and still there in TensorFlow 2.21.
What to look for: without shuffling, the order is exact. With shuffling or several threads only the
content of the batches is exact, so the example sorts it. `allow_smaller_final_batch` returns the
rest.
Toolkit: tf1ps.pipeline has the same eight, under the same names, whose counters stay on the worker
(docs/data.md). TensorFlow's own run beside them only to show that both agree.

    $ python examples/book/producers_and_batchers.py
    string_input_producer: ['a.csv', 'b.csv', 'a.csv', 'b.csv']
    input_producer: [[1, 2], [3, 4], [5, 6]]
    range_input_producer: [0, 1, 2, 0, 1, 2]
    slice_input_producer: [[10, 'ten'], [20, 'twenty'], [30, 'thirty']]
    batch: [[0, 1, 2], [3, 4, 5], [6]]
    shuffle_batch: sizes [3, 3, 1], together [0, 1, 2, 3, 4, 5, 6]
    batch_join: sizes [2, 2, 2, 1], together [0, 0, 1, 1, 2, 2, 3]
    shuffle_batch_join: sizes [2, 2, 2, 1], together [0, 0, 1, 1, 2, 2, 3]
"""

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps import pipeline as tf1ps_pipeline


def strings(p):
  """Two names, twice"""
  return p.string_input_producer(["a.csv", "b.csv"], num_epochs=2, shuffle=False).dequeue()


def inputs(p):
  """The rows of a tensor"""
  return p.input_producer([[1, 2], [3, 4], [5, 6]], num_epochs=1, shuffle=False).dequeue()


def numbers(p):
  """0, 1, 2, twice"""
  return p.range_input_producer(3, num_epochs=2, shuffle=False).dequeue()


def slices(p):
  """Two tensors, sliced alike"""
  return p.slice_input_producer(
    [[10, 20, 30], ["ten", "twenty", "thirty"]], num_epochs=1, shuffle=False)


def one(p, limit):
  """A pipeline for a batcher: 0, 1, ... below the limit."""
  return p.range_input_producer(limit, num_epochs=1, shuffle=False).dequeue()


def batch(p):
  """Threes and the rest"""
  return p.batch([one(p, 7)], 3, allow_smaller_final_batch=True)


def shuffle_batch(p):
  """Threes and the rest, out of order"""
  return p.shuffle_batch([one(p, 7)], 3, capacity=10, min_after_dequeue=4, seed=1,
                         allow_smaller_final_batch=True)


def batch_join(p):
  """Two pipelines of 3 and 4 elements, a thread each"""
  return p.batch_join([[one(p, 3)], [one(p, 4)]], 2, allow_smaller_final_batch=True)


def shuffle_batch_join(p):
  """The same, out of order"""
  return p.shuffle_batch_join([[one(p, 3)], [one(p, 4)]], 2, capacity=10, min_after_dequeue=4,
                              allow_smaller_final_batch=True)


def plain(value):
  """Numpy's values as Python's, bytes as text."""
  if isinstance(value, (list, tuple)):
    return [plain(item) for item in value]
  value = value.tolist() if hasattr(value, "tolist") else value
  return value.decode() if isinstance(value, bytes) else value


def results(build, producers):
  """Runs a pipeline, made of the producers of one module, to the end of its data."""
  found = []
  with tf.Graph().as_default():
    fetch = build(producers)
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
      coordinator = tf1ps.Coordinator()
      threads = tf1ps.start_queue_runners(session, coordinator)
      with coordinator.stop_on_exception():  # the end of the data, OutOfRangeError, is a clean one
        while True:
          found.append(plain(session.run(fetch)))
      coordinator.join(threads)
  return found


def main():
  """Prints the elements of each, and checks that TensorFlow's and tf1ps' agree."""
  tf.disable_v2_behavior()
  exact = {"string_input_producer": strings, "input_producer": inputs,
           "range_input_producer": numbers, "slice_input_producer": slices, "batch": batch}
  for name, build in exact.items():
    found = results(build, tf1ps_pipeline)
    assert found == results(build, tf.train), name
    print("%s: %s" % (name, found))
  for build in (shuffle_batch, batch_join, shuffle_batch_join):
    found = results(build, tf1ps_pipeline)
    print("%s: sizes %s, together %s" % (
      build.__name__, [len(batch) for batch in found], sorted(sum(found, []))))


if __name__ == "__main__":
  main()
