"""An iterator advances once per run for each `get_next()` op, however often you use its output.

Example B29. Section: data.
Mechanism: Iterator.get_next.

`get_next()` makes an op. In one `session.run` an op runs once. So if you fetch it twice, or use it
in ten places of the model, you get the same batch. The next run gets the next batch.

Two calls of `get_next()` make two ops. Each takes a batch, in no fixed order. A model with one call
for its features and another for its labels trains on pairs that do not belong together. So call it
once, and use its result in each place.

Toolkit: bare TensorFlow.

    $ python examples/book/dataset_get_next.py
    one op, fetched twice:
    [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5, 6]]
    [[7, 8, 9, 0, 1, 2, 3], [7, 8, 9, 0, 1, 2, 3]]
    two ops, in either order:
    [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9, 0, 1, 2, 3]]
    [[1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 8, 9, 0]]
"""
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Fetches one op twice, then two ops once each."""
  dataset = tf.data.Dataset.from_tensor_slices(np.arange(10)).repeat(3).batch(7)
  with tf.Session() as session:
    print("one op, fetched twice:")
    next_element = tf.data.make_one_shot_iterator(dataset).get_next()
    for _ in range(2):
      print([batch.tolist() for batch in session.run([next_element, next_element])])

    print("two ops, in either order:")
    iterator = tf.data.make_one_shot_iterator(dataset)
    first = iterator.get_next()
    second = iterator.get_next()  # tf1ps-doctor: ignore[second-get-next]
    for _ in range(2):
      print(sorted(batch.tolist() for batch in session.run([first, second])))


if __name__ == "__main__":
  main()
