"""Makes programs train resource variables, not ref variables; a checkpoint fits both kinds."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow.compat.v1 as tf


@contextlib.contextmanager
def resource_variables() -> Iterator[None]:
  """Makes all variables that this context builds in the default graph resource variables.

  This applies to `tf.get_variable`, `tf.Variable`, local variables, metrics and optimizers' slots.
  An explicit `use_resource=` or an inner `tf.variable_scope(..., use_resource=)` overrides it.
  `tf.enable_resource_variables` would change the whole process instead.
  """
  with tf.variable_scope(tf.get_variable_scope(), use_resource=True):
    yield
