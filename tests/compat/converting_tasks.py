"""Has AutoGraph convert a function; imported by tests and by their tasks."""
from __future__ import annotations

import os
import tempfile

import tensorflow.compat.v1 as tf


def convert():
  with tf.Graph().as_default():
    tf.data.Dataset.range(3).map(lambda number: number + 1)


def convert_and_leave():
  from tf1ps.cli import app

  convert()
  _show()
  app.leave(0)


def in_folder(folder, leaves):
  tempfile.tempdir = folder
  leaves()
  _show()


def files_in(folder):
  """The names of the files in a folder and below it, sorted."""
  return sorted(name for _, _, names in os.walk(folder) for name in names)


def _show():
  print(files_in(tempfile.gettempdir()))
