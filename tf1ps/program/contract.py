"""The contract with a user's program, and its checks.

A program is a Python module with two functions:

- `input_fn(mode, shard)` returns the tensors of a batch, or a dataset of batches:
  (features, labels), or features alone if they are a tensor or a dict.
- `model_fn(features, labels, mode)` builds the model in the default graph and returns a
  `ModelSpec`. Mode "train" needs a loss; the flags choose the optimizer, unless the spec contains
  an optimizer or a training op.
  Mode "eval" needs metrics, a loss, or both. Mode "predict" needs predictions.

`load_program` imports the module and checks that it has both functions with these parameters.
`build_input` calls input_fn, and `build_model` calls model_fn; both check the result.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
import types
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error, is_installed_file, new_graph
from tf1ps.graph import check_constants, needed_ops
from tf1ps.pipeline import Shard, next_batch
from tf1ps.program.source import (
  FUNCTIONS,
  ProgramError,
  check_file,
  check_function,
  is_path,
  nearest,
)

LOSS_METRIC = "loss"  # the name of the metric that is the mean loss
FEATURES = "features"  # the name of features that are a single tensor
PREDICTION = "prediction"  # the name of predictions that are a single tensor
_MODES = ("train", "eval", "predict")
_MOVING_AVERAGES = ("moving_mean", "moving_variance")  # the names of batch normalisation
_MOVING_UPDATES = ("AssignSub", "AssignSubVariableOp")  # the operations that update these averages

class Program(NamedTuple):
  """An imported program."""

  name: str  # the module's name or the path that the user gave
  module: Any  # the module
  input_fn: Callable  # (mode, shard) -> (features, labels)
  model_fn: Callable  # (features, labels, mode) -> ModelSpec


# The types by which a Python caller gives a program.
AnyProgram = Union[str, "os.PathLike[str]", types.ModuleType, Tuple[Callable, Callable], Program]


class ModelSpec(NamedTuple):
  """A program's model in a mode."""

  # Scalar float tensor: the mean loss of the examples of the batch.
  loss: Optional[tf.Tensor] = None
  # Name to tensor of shape [batch, ...], or a single such tensor.
  predictions: Union[None, tf.Tensor, Dict[str, tf.Tensor]] = None
  # Name to (value, update_op), as tf.metrics' functions return them; the value is a scalar.
  metrics: Optional[Dict[str, Tuple[tf.Tensor, tf.Tensor]]] = None
  # A tf.train.Optimizer, in place of the optimizer that the flags choose.
  optimizer: Optional[tf.train.Optimizer] = None
  # In mode "train", an operation or tensor that makes the whole update, in place of an optimizer.
  # Each step raises the global step by exactly 1: tf1ps raises it if the training op does not.
  # Only asynchronous between-graph replication runs a training op: others need the gradients.
  train_op: Union[None, tf.Operation, tf.Tensor] = None
  # In mode "train", hooks of the worker's session. Between-graph and all-reduce: each worker runs
  # the hooks of its own model. In-graph: the chief runs the hooks of worker 0's model. With clones:
  # the worker runs the hooks of the first clone.
  hooks: Sequence[tf.train.SessionRunHook] = ()
  # In mode "eval", the number of batches of an evaluation. None: all batches; 100 if the input has
  # no end; 1 if each run makes the tensors anew.
  eval_steps: Optional[int] = None


class ModelSpecError(Error, ValueError):
  """The result of model_fn does not fit the mode."""


def load_program(name: str) -> Program:
  """Imports a program and checks its two functions; returns the program.

  The import defines the absl flags of the module.

  Args:
    name: a module's name such as "tf1ps_examples.digits", or the path of a .py file. As `python
      FILE` does, the import of a file puts its folder at the front of sys.path. The name of the
      module is the file's name without ".py".

  Raises:
    ProgramError: the file or module does not exist; its import fails (the message names the file
      and the line, and the error is chained); a function is missing or takes other parameters; the
      module has a tensor.
  """
  if not name:
    raise ProgramError("--program is empty: give a module's name or the path of a .py file")
  module = _import_file(name) if is_path(name) else _import_module(name)
  functions = [check_function(name, vars(module), function) for function in FUNCTIONS]
  _check_no_tensors(name, module)
  return Program(name, module, *functions)


def as_program(program: AnyProgram) -> Program:
  """Returns the program that a Python caller gives; checks its two functions.

  Args:
    program: a module, its name, the path of a .py file, or the pair `(input_fn, model_fn)`; or a
      `Program`.

  Raises:
    ProgramError: `program` has another type, or an error of `load_program`.
  """
  if isinstance(program, Program):
    return program
  if isinstance(program, (str, os.PathLike)):
    return load_program(os.fspath(program))
  module: Any
  if isinstance(program, types.ModuleType):
    name, module = program.__name__, program
    _check_no_tensors(name, module)
  elif isinstance(program, (tuple, list)) and len(program) == len(FUNCTIONS):
    name, module = "the program", types.SimpleNamespace(**dict(zip(FUNCTIONS, program)))
  else:
    raise ProgramError("program must be a module, its name, the path of a .py file, or the pair "
                       f"(input_fn, model_fn), got {program!r}")
  return Program(name, module, *[
    check_function(name, vars(module), function) for function in FUNCTIONS])


def build_input(program: Program, mode: str, shard: Shard) -> Tuple[Any, Any]:
  """Calls the program's input_fn in the default graph.

  Args:
    program: the program.
    mode: "train", "eval" or "predict".
    shard: this worker's share.

  Returns:
    (features, labels): each a tensor, or dicts, lists and tuples of tensors. labels is None if
    input_fn returned None or features alone.

  Raises:
    ProgramError: input_fn returned something else.
    TooLargeError: the graph cannot hold the constants that input_fn has made.
  """
  result = program.input_fn(mode, shard)
  check_constants(tf.get_default_graph())
  if hasattr(result, "get_next"):
    raise ProgramError(
      "input_fn must return the tensors of one batch or a dataset of batches, got an iterator: "
      "return its `get_next()`")
  if hasattr(result, "element_spec"):
    _check_elements(result.element_spec)
    result = next_batch(result)
  if isinstance(result, (tf.Tensor, tf.SparseTensor, dict)):
    result = result, None
  if not (isinstance(result, (tuple, list)) and len(result) == 2):
    hint = ": is its `return` missing?" if result is None else ""
    raise ProgramError(f"input_fn must return (features, labels), or features alone (a tensor or a "
                       f"dict), got {result!r}{hint}")
  features, labels = result
  _check_tensors("features", features)
  if labels is not None:
    _check_tensors("labels", labels)
  return features, labels


def named_features(program: Program) -> Tuple[Dict[str, tf.Tensor], bool]:
  """Returns the features of mode "predict" by name, and whether they are a single tensor.

  The features are in a separate graph, and only show types and shapes. A single tensor is called
  "features".

  Raises ProgramError if they are neither a tensor nor a dict of tensors, and the errors of
  `build_input`.
  """
  with new_graph():
    features = build_input(program, "predict", Shard(epochs=1, mode="predict"))[0]
  is_single = isinstance(features, tf.Tensor)
  named = {FEATURES: features} if is_single else features
  if not (isinstance(named, dict)
          and all(isinstance(tensor, tf.Tensor) for tensor in named.values())):
    raise ProgramError("in mode 'predict', features must be a tensor or a dict of tensors, so that "
                       f"each has a name, got {features!r}")
  return named, is_single


def build_model(program: Program, features, labels, mode: str) -> ModelSpec:
  """Calls the program's model_fn in the default graph.

  Args:
    program: the program.
    features: the features that `build_input` returned, or placeholders of the same structure.
    labels: the labels; None in mode "predict".
    mode: "train", "eval" or "predict".

  Returns:
    The spec, checked for the mode.

  Raises:
    ModelSpecError: model_fn returned something else, or uses labels that are None.
    TooLargeError: the graph cannot hold the constants that model_fn has made.
  """
  try:
    spec = program.model_fn(features, labels, mode)
  except (AttributeError, TypeError, ValueError) as error:
    if labels is not None or "None" not in str(error):
      raise
    advice = ("return ModelSpec(predictions=...) before it uses them" if mode == "predict" else
              "input_fn must return (features, labels)")
    raise ModelSpecError(f"model_fn fails in mode {mode!r}, where the labels are None: {advice} "
                         f"({type(error).__name__}: {error})") from error
  check_constants(tf.get_default_graph())
  return check_model_spec(spec, mode)


def batch_size_of(features) -> tf.Tensor:
  """Returns the number of examples in a batch: the first dimension of the first tensor.

  In a dict, the first tensor has the first name in sorted order. The result is a scalar int tensor,
  or a constant if the dimension is static. Raises ProgramError if the first tensor is a scalar.
  """
  first = tf.nest.flatten(features)[0]
  if first.shape.ndims == 0:
    raise ProgramError(f"features must have the batch as first dimension, got the scalar {first!r}")
  size = None if first.shape.ndims is None else tf.dimension_value(first.shape[0])
  if size is not None:
    return tf.constant(size, tf.int32, name="batch_size")
  if isinstance(first, tf.SparseTensor):
    return tf.cast(first.dense_shape[0], tf.int32, name="batch_size")
  return tf.shape(first)[0]


def check_model_spec(spec: ModelSpec, mode: str) -> ModelSpec:
  """Returns the spec that model_fn returned; raises ModelSpecError if it does not fit the mode."""
  if mode not in _MODES:
    raise ModelSpecError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
  if not isinstance(spec, ModelSpec):
    hint = ": is its `return` missing?" if spec is None else ""
    raise ModelSpecError(f"model_fn must return a tf1ps.ModelSpec, got {spec!r}{hint}")
  if mode == "train" and spec.loss is None:
    raise ModelSpecError("model_fn returned no loss in mode 'train'")
  if mode == "eval" and spec.loss is None and not spec.metrics:
    raise ModelSpecError("model_fn returned neither a loss nor metrics in mode 'eval'")
  if mode == "predict" and spec.predictions is None:
    raise ModelSpecError("model_fn returned no predictions in mode 'predict'")
  if mode != "predict" and spec.loss is not None:
    _check_loss(spec.loss)
  if mode == "eval" and spec.metrics is not None:
    _check_metrics(spec.metrics)
  if spec.eval_steps is not None and not (
      isinstance(spec.eval_steps, int) and spec.eval_steps >= 1):
    raise ModelSpecError(f"eval_steps must be an int of at least 1, or None, got "
                         f"{spec.eval_steps!r}")
  if mode == "predict":
    predictions_by_name(spec)
  if mode == "train":
    _check_training(spec)
  return spec


def check_variables(spec: ModelSpec) -> None:
  """Checks that training changes all variables of the default graph that it must change.

  Args:
    spec: the only model in the graph, as model_fn returned it in mode "train".

  Raises:
    ModelSpecError: a trainable variable is not global; or a training step does not use a moving
      average, or leaves out the updates that a layer has made for a moving average.
  """
  global_names = {variable.op.name for variable in tf.global_variables()}
  local = [variable.op.name for variable in tf.trainable_variables()
           if variable.op.name not in global_names]
  if local:
    raise ModelSpecError(
      f"the variable {local[0]} is trainable, but not global: each worker would train its own, and "
      "no checkpoint has it. Make it a global variable, or pass trainable=False")
  used = set(needed_ops(getattr(root, "op", root)
                        for root in [spec.loss, *tf.get_collection(tf.GraphKeys.UPDATE_OPS),
                                     *([] if spec.train_op is None else [spec.train_op])]))
  idle = [variable.op.name for variable in tf.global_variables()
          if is_moving_average(variable.op.name)
          and (variable.op not in used or _leaves_out_updates(variable, used))]
  if idle:
    raise ModelSpecError(
      f"a training step does not update the moving averages {', '.join(idle)}, so the trained "
      "model would have their initial values. Use tf.layers.batch_normalization: it puts the "
      "updates into tf.GraphKeys.UPDATE_OPS, and layers of Keras do not. On TensorFlow 2 it needs "
      "the package tf_keras, and \"import tf1ps.v1 as tf\" or TF_USE_LEGACY_KERAS=1 in the "
      "environment")


def is_moving_average(name: str) -> bool:
  """Returns whether a variable of this name is a moving average of batch normalization."""
  return not set(name.split("/")).isdisjoint(_MOVING_AVERAGES)


def _leaves_out_updates(variable, used) -> bool:
  """Returns whether a moving average has updates, and a step runs none of them."""
  updates = [op for tensor in variable.op.outputs for op in tensor.consumers()
             if op.type in _MOVING_UPDATES]
  return bool(updates) and used.isdisjoint(updates)


def predictions_by_name(spec: ModelSpec) -> Dict[str, tf.Tensor]:
  """Returns the predictions as a dict; a single tensor's name is "prediction".

  Raises ModelSpecError if a prediction is not a tensor of shape [batch, ...].
  """
  predictions = spec.predictions
  if not isinstance(predictions, dict):
    predictions = {PREDICTION: predictions}
  if not predictions:
    raise ModelSpecError("predictions is an empty dict")
  for name, tensor in predictions.items():
    _check_name("predictions", name)
    if not isinstance(tensor, tf.Tensor):
      raise ModelSpecError(f"prediction {name!r} must be a tensor, got {tensor!r}")
    if tensor.shape.ndims == 0:
      raise ModelSpecError(
        f"prediction {name!r} is a scalar: its first dimension must be the batch's")
  return predictions


def metrics_with_loss(spec: ModelSpec, batch_size: tf.Tensor) -> Dict[str, tuple]:
  """Returns the metrics of a spec that was checked for mode "eval": name to (value, update_op).

  If the spec has a loss, the metrics include the mean loss: sum(loss * batch_size) /
  sum(batch_size).
  """
  metrics = dict(spec.metrics or {})
  if spec.loss is not None:
    metrics[LOSS_METRIC] = tf.metrics.mean(spec.loss, weights=tf.cast(batch_size, tf.float32))
  return metrics


def _import_file(path: str):
  path = os.path.abspath(path)
  folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
  check_file(path)
  loaded = sys.modules.get(stem)
  if loaded is not None:
    origin = getattr(loaded, "__file__", None)
    if origin and os.path.abspath(origin) == path:
      return loaded
    raise ProgramError(f"{path} cannot be imported as {stem!r}: a module of this name is loaded "
                       f"already, from {origin or 'Python itself'}; rename the file")
  if folder not in sys.path:
    sys.path.insert(0, folder)
  spec = importlib.util.spec_from_file_location(stem, path)
  if spec is None or spec.loader is None:
    raise ProgramError(f"{path} is not a .py file")
  module = importlib.util.module_from_spec(spec)
  sys.modules[stem] = module
  try:
    spec.loader.exec_module(module)
  except (Exception, SystemExit) as error:
    del sys.modules[stem]
    raise _import_error(path, error) from error
  return module


def _import_module(name: str):
  try:
    return importlib.import_module(name)
  except (Exception, SystemExit) as error:
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    if missing is None or not (name + ".").startswith(missing + "."):
      raise _import_error(name, error) from error
    parent = name.rpartition(".")[0]
    parent = parent if missing == name else missing.rpartition(".")[0]
    modules = _modules_in(parent) if parent else _own_modules()
    raise ProgramError(f"the module {name!r} does not exist{nearest(missing, modules)}") from None


def _import_error(name: str, error: BaseException) -> ProgramError:
  if isinstance(error, SystemExit):
    what = "it ends Python while it is imported; put the code that starts the program below " \
           '`if __name__ == "__main__":`'
  else:
    what = f"{type(error).__name__}: {error}"
  return ProgramError(f"{name} cannot be imported{_place(error)}: {what}")


def _place(error: BaseException) -> str:
  """Returns the last line of a traceback outside of Python and of installed packages."""
  if isinstance(error, SyntaxError) and error.filename:
    return f" ({error.filename}:{error.lineno})"
  frames = [frame for frame in traceback.extract_tb(error.__traceback__)
            if os.path.isabs(frame.filename) and frame.filename != __file__]
  own = [frame for frame in frames if not is_installed_file(frame.filename)] or frames
  return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _check_no_tensors(name: str, module) -> None:
  for attribute, value in vars(module).items():
    if tf.is_tensor(value):
      raise ProgramError(f"{name}: {attribute!r} is a tensor that was made while the program was "
                         "imported, which belongs to no model. Make it in input_fn or model_fn, or "
                         "keep it as a NumPy array")


def _own_modules() -> List[str]:
  """Returns the names of modules that are neither in Python's library nor installed."""
  folders = [os.path.realpath(folder or os.getcwd()) for folder in sys.path]
  own = [folder for folder in folders if not is_installed_file(os.path.join(folder, "any.py"))]
  return [module.name for module in pkgutil.iter_modules(own)]


def _modules_in(package: str) -> List[str]:
  path = importlib.import_module(package).__path__
  return [module.name for module in pkgutil.iter_modules(path, package + ".")]


def _check_elements(spec):
  if isinstance(spec, (tuple, list)) and len(spec) != 2:
    raise ProgramError("the elements of the dataset that input_fn returns must be pairs "
                       "(features, labels), or features alone (a tensor or a dict), each of one "
                       f"batch, got {spec!r}")


def _check_tensors(what, structure):
  leaves = tf.nest.flatten(structure)
  if not leaves:
    raise ProgramError(f"input_fn returned {what} without a tensor: {structure!r}")
  for leaf in leaves:
    if not isinstance(leaf, (tf.Tensor, tf.SparseTensor)):
      raise ProgramError(f"input_fn must return tensors; among the {what} is {leaf!r}")


def _check_loss(loss):
  if not isinstance(loss, tf.Tensor):
    raise ModelSpecError(f"loss must be a scalar float tensor, got {loss!r}")
  if not loss.dtype.is_floating:
    raise ModelSpecError(f"loss must be of a float type, got {loss.dtype.name}")
  if loss.shape.ndims not in (0, None):
    raise ModelSpecError(
      f"loss must be a scalar, got shape {loss.shape}: take its mean over the batch, such as "
      "tf.reduce_mean(loss)")


def _check_training(spec):
  optimizer, train_op = spec.optimizer, spec.train_op
  if not (optimizer is None or hasattr(optimizer, "apply_gradients")
          and hasattr(optimizer, "compute_gradients")):
    raise ModelSpecError(f"optimizer must be a tf.train.Optimizer or None, got {optimizer!r}")
  # A tensor has an operation, and so has the result of an assignment to a variable.
  if not (train_op is None or isinstance(getattr(train_op, "op", train_op), tf.Operation)):
    raise ModelSpecError(f"train_op must be an operation, such as an optimizer's minimize() "
                         f"returns it, or None, got {train_op!r}")
  if optimizer is not None and train_op is not None:
    raise ModelSpecError("model_fn returned both an optimizer and a train_op: leave one out")
  if not isinstance(spec.hooks, (list, tuple)):
    raise ModelSpecError(f"hooks must be a list of tf.train.SessionRunHook, got {spec.hooks!r}")
  for hook in spec.hooks:
    if not isinstance(hook, tf.train.SessionRunHook):
      raise ModelSpecError(f"hooks must be of tf.train.SessionRunHook; among them is {hook!r}")


def _check_metrics(metrics):
  if not isinstance(metrics, dict):
    raise ModelSpecError(f"metrics must be a dict of name to (value, update_op), got {metrics!r}")
  for name, metric in metrics.items():
    _check_name("metrics", name)
    if name == LOSS_METRIC:
      raise ModelSpecError(
        f"metrics must not contain {LOSS_METRIC!r}: the mean of the loss has this name")
    if not (isinstance(metric, (tuple, list)) and len(metric) == 2
            and tf.is_tensor(metric[0])  # or a variable, as some tf.metrics return
            and (tf.is_tensor(metric[1]) or isinstance(metric[1], tf.Operation))):
      raise ModelSpecError(f"metric {name!r} must be (value, update_op), such as "
                           f"tf.metrics.accuracy returns it, got {metric!r}")
    if metric[0].shape.ndims not in (0, None):
      raise ModelSpecError(f"the value of metric {name!r} must be a scalar, got shape "
                           f"{metric[0].shape}")


def _check_name(where, name):
  if not isinstance(name, str) or not name:
    raise ModelSpecError(f"a name in {where} must be a string and not empty, got {name!r}")
