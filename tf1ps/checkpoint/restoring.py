"""A graph's variables filled from a checkpoint, checked before they are restored.

A checkpoint knows names, types and shapes; it does not know whether a variable was a resource or a
ref variable, nor on which device it lived. So any graph whose variables have the right names and
shapes can be filled from it.
"""

from __future__ import annotations

import difflib
import re
from typing import Callable, Dict

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints
from tf1ps.checkpoint.checkpoints import CheckpointError

_PARTITION = re.compile(r"/part_\d+$")


def restore_from(checkpoint: str) -> Callable[[tf.Session], None]:
  """Adds to the default graph what fills its global variables from a checkpoint.

  A global step that the checkpoint does not have is set to 0.

  Args:
    checkpoint: the checkpoint's path without the endings of its files.

  Returns:
    A function that fills the variables in a session of this graph; it raises CheckpointError.

  Raises:
    CheckpointError: the checkpoint cannot be read, or lacks a variable, or has it with another
      shape or type.
  """
  try:
    reader = tf.train.NewCheckpointReader(checkpoint)
    shapes = reader.get_variable_to_shape_map()
    dtypes = reader.get_variable_to_dtype_map()
  except Exception as error:
    raise checkpoints.explain_checkpoint_error(checkpoint, error) from error
  variables, missing = tf.global_variables(), []
  if tf.GraphKeys.GLOBAL_STEP not in shapes:
    missing = [each for each in variables if each.op.name == tf.GraphKeys.GLOBAL_STEP]
  variables = [each for each in variables if each not in missing]
  for variable in variables:
    _check(variable, shapes, dtypes, checkpoint)
  saver = tf.train.Saver(variables + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS))
  initialise = tf.variables_initializer(missing)

  def restore(session):
    try:
      saver.restore(session, checkpoint)
    except (tf.errors.OpError, ValueError) as error:
      raise checkpoints.explain_checkpoint_error(checkpoint, error) from error
    session.run(initialise)

  return restore


def _check(variable, shapes: Dict[str, list], dtypes: Dict[str, tf.DType], checkpoint: str) -> None:
  name = variable.op.name
  if name not in shapes and _PARTITION.sub("", name) in shapes:
    return  # a part of a partitioned variable, which is saved whole
  if name not in shapes:
    close = difflib.get_close_matches(name, sorted(shapes), 1, 0.0)
    nearest = f"the nearest there is {close[0]!r}" if close else "it is empty"
    raise CheckpointError(f"the model has a variable {name!r} of shape {variable.shape}, which "
                          f"checkpoint {checkpoint} has not: {nearest}")
  if not variable.shape.is_compatible_with(shapes[name]):
    raise CheckpointError(f"the model's variable {name!r} has shape {variable.shape}, and in "
                          f"checkpoint {checkpoint} it has {tuple(shapes[name])}")
  if variable.dtype.base_dtype != dtypes[name]:
    raise CheckpointError(f"the model's variable {name!r} is {variable.dtype.base_dtype.name}, and "
                          f"in checkpoint {checkpoint} it is {dtypes[name].name}")
