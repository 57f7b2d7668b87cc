"""The saver and the restore, for training, recovery, evaluation, prediction and export.

`make_saver` makes the saver of a job. `restore_checkpoint` restores the variables of a session with
this saver or with any other `tf.train.Saver`:

1. It reads from the graph which names, types and shapes the saver restores, and compares them with
   the checkpoint. TensorFlow itself does not compare the shapes of resource variables: a variable
   of another shape would fail later, in an operation that uses it.
2. It restores the variables. An error of TensorFlow becomes a DamagedCheckpointError that names the
   file. `restore_latest` then tries the previous checkpoint.

A checkpoint contains names, types and shapes. It does not contain a variable's device, or whether
the variable was a resource variable or a ref variable. So it fits any graph whose variables have
the same names, types and shapes.
"""

from __future__ import annotations

import difflib
import functools
import logging
import os
from typing import Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints, global_step
from tf1ps.checkpoint.directory import CheckpointError
from tf1ps.compat import CONNECTION_ERRORS
from tf1ps.graph import needed_ops

_log = logging.getLogger("tf1ps")
_AVERAGE = "/ExponentialMovingAverage"  # TensorFlow adds it to the variable's name

# A checkpoint of `tf.train.Checkpoint` has this name. Its other names differ: TensorFlow maps them.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class MissingVariableError(CheckpointError, tf.errors.NotFoundError):
  """A checkpoint does not fit: it lacks a variable. TensorFlow's saver raises NotFoundError."""

  def __init__(self, message: str):
    tf.errors.NotFoundError.__init__(self, None, None, message)


class OtherVariableError(CheckpointError, tf.errors.InvalidArgumentError):
  """A checkpoint does not fit: a variable has another shape or type.

  TensorFlow's saver raises InvalidArgumentError.
  """

  def __init__(self, message: str):
    tf.errors.InvalidArgumentError.__init__(self, None, None, message)


class _Restored(NamedTuple):
  """A tensor that a saver restores."""

  dtype: tf.DType
  shape: Optional[List[int]]  # None if the graph does not have the shape


def make_saver(optional: Sequence[tf.Variable] = (), max_to_keep: Optional[int] = 5,
               averages: Sequence[tf.Variable] = ()) -> tf.train.Saver:
  """Makes the saver of all global variables and saveable objects of the default graph.

  The state file names checkpoints relative to their directory, so that the directory can be moved.

  Args:
    optional: variables that a checkpoint may lack, such as variables that older versions did not
      have. If the checkpoint lacks such a variable, or has it with another type or shape, a restore
      initialises the variable.
    max_to_keep: the number of checkpoints that are kept; None or 0 keeps all.
    averages: moving averages of variables. If a checkpoint has no moving averages, a restore
      initialises them, which gives them the restored values of their variables.
  """
  return _Saver(optional, averages, max_to_keep=max_to_keep, save_relative_paths=True,
                allow_empty=True)


def make_saver_for(checkpoint: str) -> tf.train.Saver:
  """Makes a saver that restores the default graph from a checkpoint, for use without training.

  The checkpoint may lack the global step. If the checkpoint has the moving average of a variable,
  and the graph keeps no moving averages, the variable gets the value of its moving average.

  Raises CheckpointError if the checkpoint cannot be read. `checkpoint` is its path without the
  endings of its files.
  """
  step = global_step.find_global_step()
  reader = checkpoints.open_checkpoint(checkpoint)
  is_there = step is None or reader.has_tensor(step.op.name)
  renamed = _renamed_to_averages(reader)
  optional = [] if is_there else [step]
  if not renamed:
    return make_saver(optional)
  _say_averages(os.path.dirname(checkpoint), len(renamed))
  return _Saver(optional, None, var_list=_by_name(renamed), allow_empty=True)


def moving_averages_here() -> List[tf.Variable]:
  """Returns the moving averages of variables in the default graph."""
  return [variable for variable in tf.global_variables() if variable.op.name.endswith(_AVERAGE)]


def _name_of(variable: tf.Variable) -> str:
  """Returns the name of a variable in checkpoints: a shard has the name of the whole variable."""
  return variable.to_proto().save_slice_info_def.full_name or variable.op.name


def _renamed_to_averages(reader) -> List[str]:
  """Returns the names of the graph's variables whose moving averages a checkpoint has."""
  if moving_averages_here():
    return []  # the program itself handles its moving averages
  return sorted({_name_of(variable) for variable in tf.global_variables()
                 if reader.has_tensor(_name_of(variable) + _AVERAGE)})


def _by_name(renamed: Sequence[str]) -> dict:
  """Returns the objects that a saver restores, by their names in the checkpoint."""
  by_name = {
    saveable.name: saveable for saveable in tf.get_collection(tf.GraphKeys.SAVEABLE_OBJECTS)}
  for variable in tf.global_variables():
    name = _name_of(variable)
    key = name + _AVERAGE if name in renamed else name
    if name == variable.op.name:
      by_name[key] = variable
    else:
      by_name.setdefault(key, []).append(variable)
  return by_name


@functools.lru_cache(maxsize=None)  # once per directory
def _say_averages(directory: str, count: int) -> None:
  _log.info("the checkpoints in %s have moving averages of %d variables, which take the place of "
            "the variables here", directory, count)


def restore_checkpoint(session: tf.Session, saver: tf.train.Saver, checkpoint: str) -> None:
  """Restores the variables of a session from a checkpoint.

  Args:
    session: the session.
    saver: from `make_saver`, or any other saver of the session's graph.
    checkpoint: the checkpoint's path without the endings of its files.

  Raises:
    CheckpointError: the checkpoint cannot be read, or it lacks a name, or has it with another type
      or shape.
    tf.errors.OpError: the connection to a ps was lost.
  """
  reader = checkpoints.open_checkpoint(checkpoint)
  required = saver.required_for(reader) if isinstance(saver, _Saver) else saver
  _check_fits(_restored_by(session.graph, required), reader, checkpoint)
  try:
    if isinstance(saver, _Saver):
      saver.restore_required(session, required, checkpoint)
      saver.restore_optional(session, reader)
      saver.say_unused(reader, checkpoint)
    else:
      saver.restore(session, checkpoint)
  except CONNECTION_ERRORS:  # the checkpoint is not the cause, so the caller tries again
    raise
  except (tf.errors.OpError, ValueError) as error:
    raise checkpoints.explain_checkpoint_error(checkpoint, error) from error


def restore_latest(session: tf.Session, saver: tf.train.Saver,
                   checkpoint_dir: str) -> Optional[str]:
  """Restores the latest checkpoint of a directory, or else the newest readable checkpoint.

  The checksums are compared while the values are restored, so no checkpoint is read twice.

  Returns:
    The path of the restored checkpoint; None if the directory has none.

  Raises:
    CheckpointError: no checkpoint can be read, or a readable checkpoint does not fit.
    tf.errors.OpError: the connection to a ps was lost.
  """
  def restore(checkpoint):
    restore_checkpoint(session, saver, checkpoint)
    checkpoints.warn_of_newer(checkpoint)
    return checkpoint

  return checkpoints.use_latest(checkpoint_dir, restore)


class _Saver(tf.train.Saver):
  """Saves all variables, and can restore without some of them.

  Attributes:
    required: the saver of the variables that a checkpoint must have; it is this saver itself if a
      checkpoint must have all variables.
  """

  def __init__(self, optional, averages, **kwargs):
    super().__init__(**kwargs)
    self._by_name = kwargs.get("var_list") or _by_name([])
    self.required = self._without(optional)
    # If variables take the values of their averages, the restore leaves no averages unused.
    self._may_leave_averages = averages is not None and not averages
    self._averages, self._others = list(averages or ()), None
    if self._averages:
      self._others = self._without([*optional, *self._averages])
    self._optional = []
    for variable in optional:
      value = tf.placeholder(variable.dtype.base_dtype, variable.shape)
      self._optional.append((variable, value, variable.assign(value).op))

  def _without(self, left_out):
    names = {_name_of(variable) for variable in left_out}
    return self if not names else tf.train.Saver(
      {name: variable for name, variable in self._by_name.items() if name not in names},
      allow_empty=True)

  def required_for(self, reader) -> tf.train.Saver:
    """Returns the saver of the variables that a checkpoint must have."""
    has_averages = any(reader.has_tensor(_name_of(variable)) for variable in self._averages)
    return self.required if has_averages or self._others is None else self._others

  def say_unused(self, reader, checkpoint) -> None:
    """Logs a line if the checkpoint has moving averages that this graph does not keep."""
    if self._may_leave_averages and _renamed_to_averages(reader):
      _log.info("%s has moving averages, which this job does not keep: with "
                "--moving_average_decay it goes on with them", checkpoint)

  def restore(self, sess, save_path):
    restore_checkpoint(sess, self, save_path)

  def restore_required(self, session, required, checkpoint):
    """Restores by `required`, which `required_for` has returned."""
    if required is self:
      super().restore(session, checkpoint)
    else:
      required.restore(session, checkpoint)
    if required is self._others:
      session.run([variable.initializer for variable in self._averages])
      _log.info("%s has no moving averages: they begin at the values of their variables",
                checkpoint)

  def restore_optional(self, session, reader):
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    for variable, value, assign in self._optional:
      name = variable.op.name
      if name in shapes and dtypes[name] == value.dtype and value.shape.is_compatible_with(
          shapes[name]):
        session.run(assign, {value: reader.get_tensor(name)})
      else:
        session.run(variable.initializer)


def _restored_by(graph: tf.Graph, saver: tf.train.Saver) -> Dict[str, _Restored]:
  if not saver.saver_def:
    return {}  # it saves nothing
  restored, shapes, names = {}, {}, {}
  for op in needed_ops([graph.get_operation_by_name(saver.saver_def.restore_op_name)]):
    if op.type == "RestoreV2":
      outputs = op.outputs
      names[op.name] = names_here = []  # all variables usually share one such operation
      for index, (name, part) in enumerate(_names_and_parts(op)):
        sizes = [int(size) for size in part.split()[:-1]] if part else None
        restored[name] = _Restored(outputs[index].dtype, sizes)
        names_here.append(name)
    elif op.type in ("Assign", "AssignVariableOp"):
      shapes.update(_shape_of_assigned(op, names))
  # A part of a partitioned variable is restored from the whole variable. RestoreV2 has its shape.
  return {name: tensor if tensor.shape is not None else tensor._replace(shape=shapes.get(name))
          for name, tensor in restored.items()}


def _names_and_parts(op: tf.Operation):
  names, parts = (tf.make_ndarray(tensor.op.get_attr("value")).ravel() for tensor in op.inputs[1:3])
  return [(name.decode(), part.decode()) for name, part in zip(names, parts)]


def _shape_of_assigned(op: tf.Operation,
                       names: Dict[str, List[str]]) -> Dict[str, Optional[List[int]]]:
  """Returns the shape of a variable that is assigned, by the name in the checkpoint.

  `names` has the names that each RestoreV2 operation restores, by the operation's name.
  """
  target, source = op.inputs[0], op.inputs[1]
  while source.op.type == "Identity":
    source = source.op.inputs[0]
  if source.op.name not in names:
    return {}
  shape = target.shape
  if op.type == "AssignVariableOp":
    if target.op.type != "VarHandleOp":
      return {}
    shape = tf.TensorShape(target.op.get_attr("shape"))
  name = names[source.op.name][source.value_index]
  return {name: shape.as_list() if shape.is_fully_defined() else None}


def _check_fits(restored: Dict[str, _Restored], reader, checkpoint: str) -> None:
  shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
  if _OBJECT_GRAPH in shapes:
    return
  for name, (dtype, shape) in sorted(restored.items()):
    if name not in shapes:
      close = difflib.get_close_matches(name, sorted(shapes), 1, 0.0)
      hint = f"its nearest name is {close[0]!r}" if close else "it is empty"
      of_shape = "" if shape is None else f" of shape {tuple(shape)}"
      raise MissingVariableError(f"checkpoint {checkpoint} lacks the model's variable {name!r}"
                                 f"{of_shape}: {hint}")
    if shape is not None and shape != list(shapes[name]):
      raise OtherVariableError(f"the model's variable {name!r} has shape {tuple(shape)}, but shape "
                               f"{tuple(shapes[name])} in checkpoint {checkpoint}")
    if dtype.base_dtype != dtypes[name]:
      raise OtherVariableError(f"the model's variable {name!r} has type {dtype.base_dtype.name}, "
                               f"but type {dtypes[name].name} in checkpoint {checkpoint}")
