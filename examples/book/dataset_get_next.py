"""An iterator goes on once a run for each `get_next()` op, however often its output is used.

Example B29. Section: data.
Mechanism: Iterator.get_next.

`get_next()` makes an op. Within one `session.run` an op runs once: fetched twice, or used in ten
places of the model, it is the same batch. The next run gets the next one.

Called twice, `get_next()` makes two ops, and each takes a batch, in an order that nobody has fixed.
So a model that calls it once for its features and once for its labels trains on pairs that do not
belong together. It is called once, and what it returns is used wherever it is needed.

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
