"""`tf.contrib.learn.datasets.base`: what copied readers of MNIST take from it."""

from __future__ import annotations

import os

from tf1ps.v1.examples.tutorials.mnist.input_data import Datasets  # noqa: F401


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
  """Returns the path of a file that is there; nothing is downloaded.

  Raises:
    FileNotFoundError: it is not there.
  """
  path = os.path.join(work_directory, filename)
  if not os.path.exists(path):
    raise FileNotFoundError(
        "%s has no file %s. tf1ps downloads nothing: put it there, from %s."
        % (work_directory, filename, source_url))
  return path
