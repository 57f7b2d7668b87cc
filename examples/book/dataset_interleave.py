"""Elements taken in turns from several datasets: `interleave`.

Example B30. Section: data.
Mechanism: Dataset.interleave.

Each of the five batches of dataset_batches.py becomes a dataset of its numbers. `cycle_length=3`
opens the first three datasets. `block_length=2` takes two numbers of each in turn:

1. 0 1 of the first, 7 8 of the second, 4 5 of the third; 2 3, 9 0, 6 7; 4 5, 1 2, 8 9; 6, 3, 0.
2. When a dataset ends, the next one takes its place: the fourth follows the first, and the fifth
   follows the second.

You use this with files: each file is a dataset, and a few of them are open at a time. So records of
different files are mixed before a shuffle mixes them further.

Toolkit: bare TensorFlow. In a program, `shard.files` gives each worker its own files
(docs/data.md#the-share).

    $ python examples/book/dataset_interleave.py
    0,1,7,8,4,5,2,3,9,0,6,7,4,5,1,2,8,9,6,3,0,1,2,8,9,3,4,5,6,7
"""
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Prints all numbers in the order in which they come."""
  batches = tf.data.Dataset.from_tensor_slices(np.arange(10)).repeat(3).batch(7)
  numbers = batches.interleave(
    tf.data.Dataset.from_tensor_slices, cycle_length=3, block_length=2)
  next_number = tf.data.make_one_shot_iterator(numbers).get_next()
  found = []
  with tf.Session() as session:
    try:
      while True:
        found.append(str(session.run(next_number)))
    except tf.errors.OutOfRangeError:
      print(",".join(found))


if __name__ == "__main__":
  main()
