"""Losses of regularizers that are tensors.

TensorFlow 2 puts objects into the collection REGULARIZATION_LOSSES that make a tensor anew wherever
they are used. Moving averages, `tf.group`, `tf.tuple` and `tf.control_dependencies` refuse them.
TensorFlow 1 puts tensors there. A variable that a loop makes has its loss outside of the loop: the
private `tf.Operation._get_control_flow_context` tells.
"""

from __future__ import annotations

import functools

import tensorflow.compat.v1 as tf


def keep_tensors() -> None:
  """Has graphs put tensors into the collection, from now on."""
  stock = tf.Graph.add_to_collection
  if hasattr(stock, "__wrapped__"):
    return

  @functools.wraps(stock)
  def add_to_collection(graph, name, value):
    is_loss = name == tf.GraphKeys.REGULARIZATION_LOSSES
    return stock(graph, name, _tensor(value) if is_loss else value)

  tf.Graph.add_to_collection = add_to_collection


def _tensor(loss):
  if isinstance(loss, (tf.Tensor, tf.Variable)) or not hasattr(loss, "value_index"):
    return loss
  if loss.op._get_control_flow_context() is None:
    return loss.op.outputs[loss.value_index]
  with tf.init_scope():
    return tf.convert_to_tensor(loss)
