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
  _count()
  app.leave(0)


def in_folder(folder, leaves):
  tempfile.tempdir = folder
  leaves()
  _count()


def _count():
  print("converted %d" % len(os.listdir(tempfile.gettempdir())))
