"""Functions whose arguments had another order before TensorFlow 1.0.

If the types of the arguments show the order, both orders work. If they do not, the program must
request the old order: by `tf1ps-run --pre_1_0` or by `tf.use_pre_1_0()`.
"""

from __future__ import annotations

import functools
import numbers

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.v1 import renamed as _renamed

_is_pre_1_0 = False  # whether the program has requested the old order


def use_pre_1_0() -> None:
  """Makes functions take their positional arguments in the order from before TensorFlow 1.0.

  These functions are the cross entropies (logits, labels) of `tf.nn`, and `sampled_softmax_loss`
  and `nce_loss` (weights, biases, inputs, labels).
  """
  global _is_pre_1_0
  _is_pre_1_0 = True


def _is_number(value):
  return (isinstance(value, numbers.Integral) and not isinstance(value, bool)) or (
      isinstance(value, (np.ndarray, tf.Tensor)) and value.shape == ())


@functools.wraps(tf.concat)
def concat(*args, **kwargs):
  """Like TensorFlow's function; also takes (dim, values)."""
  if "concat_dim" in kwargs:
    kwargs["axis"] = kwargs.pop("concat_dim")
  elif len(args) > 1 and _is_number(args[0]) and not (
      _is_number(args[1]) or isinstance(args[1], numbers.Number)):
    args = (args[1], args[0]) + args[2:]
  elif len(args) == 1 and _is_number(args[0]) and "values" in kwargs:
    args, kwargs = (), dict(kwargs, axis=args[0])
  else:
    return tf.concat(*args, **kwargs)
  _renamed.say_once("tf.concat(dim, values) is tf.concat(values, axis) today")
  return tf.concat(*args, **kwargs)


@functools.wraps(tf.split)
def split(*args, **kwargs):
  """Like TensorFlow's function; also takes (dim, count, value)."""
  for old, new in (("split_dim", "axis"), ("num_split", "num_or_size_splits")):
    if old in kwargs:
      kwargs[new] = kwargs.pop(old)
  is_old = len(args) > 0 and _is_number(args[0]) and (len(args) > 2 or "value" in kwargs)
  if not is_old:
    return tf.split(*args, **kwargs)
  _renamed.say_once("tf.split(dim, count, value) is tf.split(value, count, axis) today")
  names = ("axis", "num_or_size_splits", "value", "name")
  return tf.split(**dict(zip(names, args), **kwargs))


@functools.wraps(tf.reverse)
def reverse(tensor, axis=None, name=None, dims=None):
  """Like TensorFlow's function; also takes a truth value for each dimension."""
  chosen = dims if axis is None else axis
  if isinstance(chosen, (list, tuple, np.ndarray)) and len(chosen) and all(
      isinstance(flag, (bool, np.bool_)) for flag in chosen):
    _renamed.say_once("tf.reverse takes dimensions today, not a truth value for each")
    chosen = [dimension for dimension, is_reversed in enumerate(chosen) if is_reversed]
  return tf.reverse(tensor, chosen, name)


def _is_method(value):
  """Whether a value is a value of `tf.image.ResizeMethod`, and not the width of a picture."""
  return isinstance(value, numbers.Integral) and 0 <= value <= 3


@functools.wraps(tf.image.resize_images)
def resize_images(images, size=None, *args, **kwargs):
  """Like TensorFlow's function; also takes height and width as separate arguments."""
  if "new_height" in kwargs:
    size, args = kwargs.pop("new_height"), (kwargs.pop("new_width"),) + args
  elif "new_width" in kwargs:
    args = (kwargs.pop("new_width"),) + args
  elif not (_is_number(size) and args and _is_number(args[0])) or (
      isinstance(size, tf.Tensor) and _is_method(args[0])):
    return tf.image.resize_images(images, size, *args, **kwargs)
  _renamed.say_once(
      "tf.image.resize_images(images, height, width) is resize_images(images, [height, width]) "
      "today")
  return tf.image.resize_images(images, [size, args[0]], *args[1:], **kwargs)


def _cross_entropy(name, labels):
  """Makes a cross entropy of tf.nn; `labels` is the old name of its second argument."""
  function = getattr(tf.nn, name)

  @functools.wraps(function)
  def cross_entropy(*args, **kwargs):
    if "targets" in kwargs and labels == "targets":
      kwargs["labels"] = kwargs.pop("targets")
    if not args or args[0] is None:
      return function(*args, **kwargs)
    if not _is_pre_1_0:
      raise ValueError(
          "tf.nn.%s takes labels= and logits= by name. A program from before TensorFlow 1.0 gives "
          "(logits, %s): call tf.use_pre_1_0() first, or run it by tf1ps-run --pre_1_0."
          % (name, labels))
    _renamed.say_once("tf.nn.%s takes labels= and logits= by name today" % name)
    return function(**dict(zip(("logits", "labels", "name"), args), **kwargs))
  return cross_entropy


def _sampled(name):
  """Makes a sampled loss of tf.nn, whose third and fourth argument have changed places."""
  function = getattr(tf.nn, name)

  @functools.wraps(function)
  def sampled(*args, **kwargs):
    if _is_pre_1_0 and len(args) > 3:
      _renamed.say_once("tf.nn.%s takes labels before inputs today" % name)
      args = args[:2] + (args[3], args[2]) + args[4:]
    return function(*args, **kwargs)
  return sampled


softmax_cross_entropy_with_logits = _cross_entropy("softmax_cross_entropy_with_logits", "labels")
sparse_softmax_cross_entropy_with_logits = _cross_entropy(
    "sparse_softmax_cross_entropy_with_logits", "labels")
sigmoid_cross_entropy_with_logits = _cross_entropy("sigmoid_cross_entropy_with_logits", "targets")
sampled_softmax_loss = _sampled("sampled_softmax_loss")
nce_loss = _sampled("nce_loss")
