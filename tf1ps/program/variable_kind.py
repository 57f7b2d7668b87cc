"""The kind of a graph's variables: resource variables, or TensorFlow 1's ref variables.

A resource variable and a ref variable of one name are two objects, so all processes of a job must
use the same kind. A checkpoint fits both kinds.
"""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow.compat.v1 as tf

from tf1ps.program.choices import RESOURCE
from tf1ps.program.choices import VARIABLES as KINDS


@contextlib.contextmanager
def kind_scope(kind: str) -> Iterator[None]:
  """Sets the kind of the variables that are made in this context, in the default graph.

  The kind applies to `tf.get_variable`, `tf.Variable`, local variables, metrics and optimizers'
  slots. An explicit `use_resource=` and an inner `tf.variable_scope(..., use_resource=)` win over
  it. `tf.enable_resource_variables` would change the whole process instead.

  Args:
    kind: "resource" or "ref".

  Raises:
    ValueError: there is no such kind.
  """
  if kind not in KINDS:
    raise ValueError(f"variables must be {' or '.join(KINDS)}, got {kind!r}")
  with tf.variable_scope(tf.get_variable_scope(), use_resource=kind == RESOURCE):
    yield
