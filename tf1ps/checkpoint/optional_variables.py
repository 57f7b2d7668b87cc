"""Checkpoints that may lack some variables: those that older versions, or other jobs, did not have.

What is saved has all variables. Where a checkpoint that is restored lacks an optional one, or has
it with another type or shape, the variable is initialised instead.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

OPTIONAL = "tf1ps_optional_variables"  # collection: global variables that a checkpoint may lack


class OptionalVariablesSaver(tf.train.Saver):
  """A `tf.train.Saver` of all variables of the default graph, which restores without some."""

  def __init__(self, **kwargs):
    """Creates the saver.

    Args:
      **kwargs: of `tf.train.Saver`.
    """
    super().__init__(**kwargs)
    optional = tf.get_collection(OPTIONAL)
    names = {variable.name for variable in optional}
    self._required = tf.train.Saver(
      [variable for variable in tf.global_variables() if variable.name not in names]
      + tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS))
    self._optional = []
    for variable in optional:
      value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
      self._optional.append((variable, value, variable.assign(value).op))

  def restore(self, sess, save_path):
    """Restores a checkpoint; raises what `tf.train.Saver.restore` does for the others."""
    self._required.restore(sess, save_path)
    reader = tf.train.NewCheckpointReader(save_path)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for variable, value, assign in self._optional:
      name = variable.op.name
      if name in shapes and dtypes[name] == value.dtype and value.shape.is_compatible_with(
          shapes[name]):
        sess.run(assign, {value: reader.get_tensor(name)})
      else:
        sess.run(variable.initializer)
