"""Names from before TensorFlow 1.0, and others that TensorFlow has no longer.

A program that uses one gets the function of today; the log says once what it is called, and where.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Callable, Set

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as namespace_lib

_said: Set[str] = set()  # what the log has, in this process


def _scalar_summary(tags, values, collections=None, name=None):
  del name
  return tf.summary.scalar(tags, values, collections)


def _histogram_summary(tag, values, collections=None, name=None):
  del name
  return tf.summary.histogram(tag, values, collections)


def _image_summary(tag, tensor, max_images=3, collections=None, name=None):
  del name
  return tf.summary.image(tag, tensor, max_images, collections)


def _audio_summary(tag, tensor, sample_rate, max_outputs=3, collections=None, name=None):
  del name
  return tf.summary.audio(tag, tensor, sample_rate, max_outputs, collections)


def _batch_matmul(x, y, adj_x=False, adj_y=False, name=None):
  return tf.matmul(x, y, adjoint_a=adj_x, adjoint_b=adj_y, name=name)


# (old name, name of today, the function where its arguments differ), each below `tf`.
_RENAMED = (
  ("audio_summary", "summary.audio", _audio_summary),
  ("batch_matmul", "matmul", _batch_matmul),
  ("complex_abs", "abs", None),
  ("histogram_summary", "summary.histogram", _histogram_summary),
  ("image_summary", "summary.image", _image_summary),
  ("inv", "reciprocal", None),
  ("listdiff", "setdiff1d", None),
  ("merge_all_summaries", "summary.merge_all", None),
  ("merge_summary", "summary.merge", None),
  ("mul", "multiply", None),
  ("neg", "negative", None),
  ("pack", "stack", None),
  ("scalar_summary", "summary.scalar", _scalar_summary),
  ("select", "where", None),
  ("sub", "subtract", None),
  ("unpack", "unstack", None),
  ("image.per_image_whitening", "image.per_image_standardization", None),
  ("nn.bidirectional_rnn", "nn.static_bidirectional_rnn", None),
  ("nn.deconv2d", "nn.conv2d_transpose", None),
  ("nn.rnn", "nn.static_rnn", None),
  ("nn.state_saving_rnn", "nn.static_state_saving_rnn", None),
  ("train.SummaryWriter", "summary.FileWriter", None),
  ("train.SummaryWriterCache", "summary.FileWriterCache", None),
) + tuple(("batch_" + name, name, None) for name in (
  "cholesky", "cholesky_solve", "fft", "fft2d", "fft3d", "ifft", "ifft2d", "ifft3d",
  "matrix_band_part", "matrix_determinant", "matrix_diag", "matrix_diag_part", "matrix_inverse",
  "matrix_set_diag", "matrix_solve", "matrix_solve_ls", "matrix_transpose",
  "matrix_triangular_solve", "self_adjoint_eig", "svd"))

# What to use where a name has no function of today.
_ADVICE = {
  "nn.seq2seq": "TensorFlow 0.12 is the last with it. Use tf.nn.dynamic_rnn",
}


def finder(namespace: str = "") -> Callable[[str], object]:
  """Makes the look-up of names that a namespace has no longer.

  Args:
    namespace: its name below `tf`, such as "train"; "" for `tf` itself.

  Returns:
    A function that takes a name, and returns what it is today or raises AttributeError.
  """
  prefix = namespace and namespace + "."
  today = {old: (new, function) for old, new, function in _RENAMED}

  def find(name):
    old = prefix + name
    if old in _ADVICE:
      raise AttributeError("tf.%s is not there: %s." % (old, _ADVICE[old]))
    if old not in today:
      raise namespace_lib.UnknownNameError(old)
    new, function = today[old]
    say_once("tf.%s is called tf.%s today" % (old, new))
    return function or functools.reduce(getattr, new.split("."), tf)
  return find


def say_once(text: str) -> None:
  """Logs a sentence about the program, with the place in it that is running, once a process."""
  if text not in _said:
    _said.add(text)
    tf.logging.warning("%s: %s.", _place(), text)


def _place():
  """Returns file:line of the innermost frame that is not tf1ps' or Python's own import."""
  own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
  frame = sys._getframe(1)
  while frame is not None and frame.f_code.co_filename.startswith((own, "<frozen importlib")):
    frame = frame.f_back
  return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno) if frame else "?"
