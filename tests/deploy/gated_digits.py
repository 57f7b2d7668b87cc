"""The digits, with training held at a step until a file is there: a worker has time to come back.

    --program=gated_digits.py --gate=FILE
"""
from __future__ import annotations

import os
import pathlib
import sys
import threading
import time

import tensorflow.compat.v1 as tf
from absl import flags

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import digits  # noqa: E402

flags.DEFINE_string("gate", None, "The file for which training waits.")

FLAGS = {"learning_rate": 0.01}
HELD_AT = 200  # steps of this process
LIMIT = 150.0
input_fn = digits.input_fn


class Gate(tf.train.SessionRunHook):
  """Holds the step of a worker while the file is not there."""

  def __init__(self):
    self._steps = 0

  def before_run(self, run_context):
    """Waits."""
    self._steps += 1
    until, pause = time.monotonic() + LIMIT, threading.Event()
    while (self._steps > HELD_AT and not os.path.exists(flags.FLAGS.gate)
           and time.monotonic() < until):
      pause.wait(0.1)


def model_fn(features, labels, mode):
  """The network of the digits, with the gate."""
  spec = digits.model_fn(features, labels, mode)
  return spec._replace(hooks=[Gate()]) if mode == "train" else spec
