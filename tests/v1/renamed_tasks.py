"""Programs with names and arguments from before TensorFlow 1.0."""
from __future__ import annotations

import functools

import numpy as np

from tests.v1.namespace_tasks import refusal


def run(tensor):
  import tf1ps.v1 as tf
  with tf.Session() as session:
    session.run([tf.initialize_all_variables(), tf.initialize_local_variables()])
    return np.asarray(session.run(tensor)).tolist()


def names(folder):
  import tf1ps.v1 as tf
  from tf1ps.v1.train import SummaryWriter
  one, two = tf.constant([1.0, 2.0]), tf.constant([3.0, 5.0])
  assert run(tf.mul(one, two)) == [3.0, 10.0] and run(tf.mul(two, two)) == [9.0, 25.0]
  assert run(tf.sub(two, one)) == [2.0, 3.0] and run(tf.neg(one)) == [-1.0, -2.0]
  assert run(tf.pack([one, two])) == [[1.0, 2.0], [3.0, 5.0]] == run(tf.unpack(tf.pack([one, two])))
  assert run(tf.select([True, False], one, two)) == [1.0, 5.0]
  assert run(tf.complex_abs(tf.complex(3.0, 4.0))) == 5.0
  matrix = tf.constant([[[1.0, 2.0], [0.0, 1.0]]])
  assert run(tf.batch_matmul(matrix, matrix, adj_y=True)) == [[[5.0, 2.0], [2.0, 1.0]]]
  assert run(tf.batch_matrix_determinant(matrix)) == [1.0]
  assert run(tf.image.per_image_whitening(tf.zeros([2, 2, 1]))) == [[[0.0]] * 2] * 2
  outputs, _ = tf.nn.rnn(tf.nn.rnn_cell.BasicLSTMCell(2), [tf.zeros([1, 3])] * 2, dtype=tf.float32)
  assert len(outputs) == 2 and tf.all_variables()
  tf.scalar_summary("loss", 1.5, collections=["own", tf.GraphKeys.SUMMARIES])
  tf.histogram_summary("weights", one)
  tf.image_summary("picture", tf.zeros([1, 2, 2, 1]), max_images=1)
  assert len(tf.get_collection("own")) == 1
  merged = tf.merge_all_summaries()
  writer = SummaryWriter(folder, tf.get_default_graph())
  with tf.Session() as session:
    writer.add_summary(session.run(merged), 1)
  writer.close()
  assert "mul" not in dir(tf) and "SummaryWriter" not in dir(tf.train)


def every_name():
  """Each row of the table leads to something that is there on this TensorFlow."""
  import tf1ps.v1 as tf
  from tf1ps import compat
  from tf1ps.v1 import renamed
  assert set(renamed._FUNCTIONS) & set(compat.RENAMED) == compat.OTHER_ARGUMENTS
  for old, new in compat.RENAMED.items():
    assert callable(functools.reduce(getattr, new.split("."), tf)), new
    assert callable(functools.reduce(getattr, old.split("."), tf)), old
  assert refusal(tf.nn, "seq2seq") == (
      "tf.nn.seq2seq is not there: TensorFlow 0.12 is the last with it. Use tf.nn.dynamic_rnn.")
  assert tf.config.experimental_list_devices()[0] == (
    "/job:localhost/replica:0/task:0/device:CPU:0")
  assert callable(tf.pywrap_tensorflow.NewCheckpointReader)


def lost_names():
  """Names of 1.15 that newer TensorFlows lack say what to use."""
  import tf1ps.v1 as tf
  for name, advice in (("data.experimental.StatsAggregator", "leave it out"),
                       ("data.experimental.CheckpointInputPipelineHook", "SAVEABLE_OBJECTS"),
                       ("tpu.experimental.AdamParameters", "it is for TPUs"),
                       ("estimator.BoostedTreesClassifier", "tensorflow-decision-forests")):
    space, _, last = name.rpartition(".")
    assert advice in refusal(functools.reduce(getattr, space.split("."), tf), last)


def orders_by_types():
  import tf1ps.v1 as tf
  one, two = tf.constant([[1, 2]]), tf.constant([[3, 4]])
  across = [[1, 2, 3, 4]]
  assert run(tf.concat(1, [one, two])) == across == run(tf.concat([one, two], 1))
  assert run(tf.concat(np.int64(1), [one, two])) == across
  assert run(tf.concat(concat_dim=1, values=[one, two])) == across
  assert run(tf.concat(values=[one, two], axis=1, name="c")) == across
  assert run(tf.concat(1, values=(one, two), name="c")) == across
  wide = tf.constant(across)
  halves = [[[1, 2]], [[3, 4]]]
  for split in (tf.split(1, 2, wide), tf.split(wide, 2, 1), tf.split(wide, [2, 2], axis=1),
                tf.split(split_dim=1, num_split=2, value=wide), tf.split(1, 2, value=wide),
                tf.split(value=wide, num_or_size_splits=2, axis=1)):
    assert run(split) == halves
  for reverse in (tf.reverse(wide, [False, True]), tf.reverse(wide, [1]),
                  tf.reverse(wide, axis=[1]), tf.reverse(wide, dims=[False, True])):
    assert run(reverse) == [[4, 3, 2, 1]]
  image = tf.zeros([4, 4, 1])
  for resized in (tf.image.resize_images(image, 2, 3), tf.image.resize_images(image, [2, 3]),
                  tf.image.resize_images(image, 2, 3, method=1),
                  tf.image.resize_images(image, new_height=2, new_width=3),
                  tf.image.resize_images(image, size=(2, 3))):
    assert resized.shape.as_list() == [2, 3, 1]
  # What TensorFlow refuses in today's order is not in the old order.
  area = tf.image.ResizeMethod.AREA
  for refused in (lambda: tf.concat(1, 4.2),
                  lambda: tf.image.resize_images(image, tf.constant(2), area)):
    try:
      refused()
    except (TypeError, ValueError):
      continue
    raise AssertionError("it was taken for the old order")


def losses(is_asked):
  """With is_asked the program is from before 1.0."""
  import tf1ps.v1 as tf
  from tf1ps.v1.nn import sigmoid_cross_entropy_with_logits as imported
  if is_asked:
    tf.use_pre_1_0()
  logits, dense = tf.constant([[1.0, 2.0]]), tf.constant([[0.0, 1.0]])
  for function, labels in ((tf.nn.softmax_cross_entropy_with_logits, dense),
                           (tf.nn.sparse_softmax_cross_entropy_with_logits, tf.constant([1])),
                           (imported, dense)):
    expected = run(function(labels=labels, logits=logits))
    try:
      assert run(function(logits, labels)) == expected and is_asked
    except ValueError as error:
      assert not is_asked
      assert "call tf.use_pre_1_0() first, or run it by tf1ps-run --pre_1_0." in str(error)
  assert run(imported(logits=logits, targets=dense)) == run(imported(logits=logits, labels=dense))
  weights, biases, inputs = tf.ones([5, 2]), tf.zeros([5]), tf.ones([1, 2])
  classes = tf.constant([[1]], tf.int64)
  pair = (inputs, classes) if is_asked else (classes, inputs)
  for loss in (tf.nn.sampled_softmax_loss, tf.nn.nce_loss):
    assert loss(weights, biases, *pair, num_sampled=2, num_classes=5).shape.as_list() == [1]
    by_name = loss(weights, biases, inputs=inputs, labels=classes, num_sampled=2, num_classes=5)
    assert by_name.shape.as_list() == [1]
