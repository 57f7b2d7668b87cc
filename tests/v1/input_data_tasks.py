"""What tests of the reader of MNIST run as processes."""
from __future__ import annotations

import gzip
import os
import struct

import numpy as np


def write_idx(path, values):
  """Writes an IDX file of unsigned bytes, compressed if its name ends so."""
  values = np.asarray(values, np.uint8)
  header = struct.pack(">HBB%dI" % values.ndim, 0, 8, values.ndim, *values.shape)
  with (gzip.open if path.endswith(".gz") else open)(path, "wb") as file:
    file.write(header + values.tobytes())


def write_digits(folder):
  """Writes 6 training and 2 test images of 2 x 2 pixels, two files of four compressed."""
  write_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"), np.arange(24).reshape(6, 2, 2))
  write_idx(os.path.join(folder, "train-labels-idx1-ubyte"), [5, 0, 4, 1, 9, 2])
  write_idx(os.path.join(folder, "t10k-images-idx3-ubyte"), np.full([2, 2, 2], 255))
  write_idx(os.path.join(folder, "t10k-labels-idx1-ubyte.gz"), [7, 3])


def reads(folder):
  import tf1ps.v1 as tf
  from tf1ps.v1.examples.tutorials.mnist import input_data
  write_digits(folder)
  digits = input_data.read_data_sets(folder, one_hot=True, validation_size=2, seed=5)
  assert digits.train.num_examples == 4 and digits.validation.num_examples == 2
  assert digits.test.images.tolist() == [[1.0] * 4] * 2 and digits.test.labels[0].argmax() == 7
  assert digits.validation.labels.argmax(1).tolist() == [5, 0]
  assert digits.train.images.dtype == np.float32
  images, labels = digits.train.next_batch(3, shuffle=False)
  assert labels.argmax(1).tolist() == [4, 1, 9]
  assert np.allclose(images[0], np.array([8, 9, 10, 11]) / 255)
  labels = digits.train.next_batch(3, shuffle=False)[1]
  assert labels.argmax(1).tolist() == [2, 4, 1] and digits.train.epochs_completed == 1

  raw = tf.examples.tutorials.mnist.input_data.read_data_sets(
      folder, reshape=False, dtype=tf.uint8, validation_size=0, seed=5)
  assert raw.train.images.shape == (6, 2, 2, 1) and raw.train.images.max() == 23
  orders = [raw.train.next_batch(6)[1].tolist() for _ in range(3)]
  assert all(sorted(order) == [0, 1, 2, 4, 5, 9] for order in orders)
  assert len({tuple(order) for order in orders}) > 1 and raw.train.epochs_completed == 2

  fake = input_data.read_data_sets("/nowhere", fake_data=True, one_hot=True)
  assert np.shape(fake.train.next_batch(2)[0]) == (2, 784)
  assert fake.train.next_batch(2)[1][0] == [1] + [0] * 9


def refuses(folder):
  from tf1ps.v1.examples.tutorials.mnist import input_data

  def message(**options):
    try:
      input_data.read_data_sets(folder, **options)
    except (FileNotFoundError, ValueError) as error:
      return str(error)

  assert message().startswith(
      folder + " has no file train-images-idx3-ubyte.gz. tf1ps downloads nothing: put the files ")
  write_digits(folder)
  assert message(validation_size=7) == (
      "validation_size=7 must be between 0 and the 6 training examples.")
  labels = os.path.join(folder, "train-labels-idx1-ubyte")
  write_idx(labels, [1, 2])
  assert message(validation_size=0) == "There are 6 images and 2 labels."
  write_idx(labels, [[1, 2]])
  assert "is not an IDX file of unsigned bytes with 1 dimensions" in message()
  write_idx(labels, [1, 2, 3])
  with open(labels, "r+b") as file:
    file.truncate(9)
  assert message().endswith("holds 1 values, and its header says 3: it is cut off.")


def network(unused_folder):
  import tf1ps.v1 as tf
  from tf1ps.v1.examples.tutorials.mnist import mnist
  images = tf.random_uniform([8, mnist.IMAGE_PIXELS], seed=1)
  labels = tf.constant([0, 1, 2, 3, 4, 5, 6, 7])
  logits = mnist.inference(images, 16, 4)
  loss = mnist.loss(logits, labels)
  train_op, correct = mnist.training(loss, 0.1), mnist.evaluation(logits, labels)
  assert [variable.op.name for variable in tf.trainable_variables()] == [
    layer + "/" + part for layer in ("hidden1", "hidden2", "softmax_linear")
    for part in ("weights", "biases")]
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    first = session.run(loss)
    for _ in range(50):
      session.run(train_op)
    assert session.run(loss) < first and 0 <= session.run(correct) <= 8
    assert tf.train.global_step(session, tf.global_variables()[-1]) == 50
