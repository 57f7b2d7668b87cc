"""Names from before TensorFlow 1.0, and other names that TensorFlow no longer has.

A program that uses an old name gets today's function. The log says the new name and the place once.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Callable, Set

import tensorflow.compat.v1 as tf

from tf1ps.compat import LOST, RENAMED
from tf1ps.v1 import namespace as namespace_lib

_said: Set[str] = set()  # the sentences that this process has logged


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


def _list_devices():
  return ["/job:localhost/replica:0/task:0" + device.name
          for device in tf.config.experimental.list_logical_devices()]


# {old name: a function with the old arguments}, if no function of today has these arguments
_FUNCTIONS = {
  "audio_summary": _audio_summary,
  "batch_matmul": _batch_matmul,
  "config.experimental_list_devices": _list_devices,
  "histogram_summary": _histogram_summary,
  "image_summary": _image_summary,
  "scalar_summary": _scalar_summary,
}


def finder(namespace: str = "") -> Callable[[str], object]:
  """Makes the look-up of names that a namespace no longer has.

  Args:
    namespace: its name below `tf`, such as "train"; "" for `tf` itself.

  Returns:
    A function that takes a name, and returns today's value of the name or raises AttributeError.
  """
  prefix = namespace and namespace + "."

  def find(name):
    old = prefix + name
    if old in LOST:
      raise AttributeError("tf.%s is not there: %s." % (old, LOST[old]))
    if old in RENAMED:
      say_once("tf.%s is called tf.%s today" % (old, RENAMED[old]))
    elif old not in _FUNCTIONS:
      raise namespace_lib.UnknownNameError(old)
    return _FUNCTIONS.get(old) or functools.reduce(getattr, RENAMED[old].split("."), tf)
  return find


def say_once(text: str) -> None:
  """Logs a sentence about the program and the running line's place, once per process."""
  if text not in _said:
    _said.add(text)
    tf.logging.warning("%s: %s.", _place(), text)


def program_frame():
  """Returns the innermost frame that belongs neither to tf1ps nor to Python's import system."""
  own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
  frame = sys._getframe(1)
  while frame is not None and frame.f_code.co_filename.startswith((own, "<frozen importlib")):
    frame = frame.f_back
  return frame


def _place():
  frame = program_frame()
  return "%s:%d" % (os.path.basename(frame.f_code.co_filename), frame.f_lineno) if frame else "?"
