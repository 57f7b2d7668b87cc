"""A function of TensorFlow ops, applied to each element of a dataset.

Example E10.
Mechanism: Dataset.map. TensorFlow calls the function *once*, while the dataset is made, with a
tensor that stands for any element. The function's ops become a graph of their own, which then runs
for each element. With `num_parallel_calls` it runs in several threads.
What to look for: five elements, and one call. So Python code in the function, such as `print`, a
counter or a random number of numpy, also runs only once.
Toolkit: bare TensorFlow.

    $ python examples/programs/dataset_map.py
    calls of the function: 1
    1, 4, 9, 16, 25
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Prints the squares of 1 to 5."""
  calls = []

  def square(x):
    calls.append(x)
    return x * x

  squares = tf.data.Dataset.from_tensor_slices([1, 2, 3, 4, 5]).map(square)
  next_square = tf.data.make_one_shot_iterator(squares).get_next()
  print("calls of the function:", len(calls))
  with tf.Session() as session:
    print(", ".join(str(session.run(next_square)) for _ in range(5)))


if __name__ == "__main__":
  main()
