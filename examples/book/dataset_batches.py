"""A dataset that is repeated and cut into batches, and the iterator that returns them.

Example B28. Section: data.
Mechanism: repeat and batch.

The numbers 0 to 9, three times, are thirty numbers. In batches of seven they make *five* batches,
and the last one has two numbers. `batch` follows `repeat`, so a batch may hold the end of one round
and the beginning of the next. In the other order, each round ends with a short batch of its own.
`drop_remainder=True` drops short batches, so that the shape of a batch is known.

At the end the iterator raises an OutOfRangeError. (The old `dataset.make_one_shot_iterator()` is
now `tf.data.make_one_shot_iterator(dataset)`, which also works on 1.15.)

Toolkit: bare TensorFlow. In a program, `shard.dataset(dataset)` repeats the dataset and divides it
among the workers, and the program makes the batches (docs/data.md#the-share).

    $ python examples/book/dataset_batches.py
    repeat, then batch:
    [0, 1, 2, 3, 4, 5, 6]
    [7, 8, 9, 0, 1, 2, 3]
    [4, 5, 6, 7, 8, 9, 0]
    [1, 2, 3, 4, 5, 6, 7]
    [8, 9]
    batch, then repeat:
    [0, 1, 2, 3, 4, 5, 6]
    [7, 8, 9]
    [0, 1, 2, 3, 4, 5, 6]
    [7, 8, 9]
    [0, 1, 2, 3, 4, 5, 6]
    [7, 8, 9]
"""
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def print_all(dataset):
  """Prints every element of a dataset."""
  next_element = tf.data.make_one_shot_iterator(dataset).get_next()
  with tf.Session() as session:
    try:
      while True:
        print(session.run(next_element).tolist())
    except tf.errors.OutOfRangeError:
      pass


def main():
  """Prints the batches in both orders."""
  numbers = tf.data.Dataset.from_tensor_slices(np.arange(10))
  print("repeat, then batch:")
  print_all(numbers.repeat(3).batch(7))
  print("batch, then repeat:")
  print_all(numbers.batch(7).repeat(3))


if __name__ == "__main__":
  main()
