"""A program: a Python module with `input_fn(mode, shard)` and `model_fn(features, labels, mode)`.

1. `load_program` imports it, from a module's name or from the path of a file, and checks that both
   functions are there and take what they are called with. absl flags that the module defines come
   to life by the import.
2. `build_input` calls its input_fn in the default graph and checks what comes back: the tensors of
   one batch, or a dataset of batches.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import sysconfig
import traceback
from typing import Any, Callable, List, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline import Shard, next_batch

# What a program must define, and the parameters that it is called with, by position.
_FUNCTIONS = {"input_fn": ("mode", "shard"), "model_fn": ("features", "labels", "mode")}

# The folders of Python's library and of the installed packages.
_INSTALLED = tuple(
  sysconfig.get_paths()[each] + os.sep for each in ("stdlib", "purelib", "platlib"))


class ProgramError(Error, ValueError):
  """The program cannot be found, imported or used."""


class Program(NamedTuple):
  """An imported program."""

  name: str  # as it was given: a module's name or a path
  module: Any  # the module
  input_fn: Callable  # (mode, shard) -> (features, labels)
  model_fn: Callable  # (features, labels, mode) -> ModelSpec


def load_program(name: str) -> Program:
  """Imports a program and checks its two functions.

  Args:
    name: a module's name such as "tf1ps_examples.digits", or the path of a .py file. A file is
      imported as `python FILE` would have it: its folder goes to the front of sys.path. The
      module's name is the file's without ".py".

  Raises:
    ProgramError: there is no such file or module, it fails while it is imported (the error is
      chained, its file and line named), or its functions are missing or take other parameters.
  """
  if not name:
    raise ProgramError("--program is empty: give a module's name or the path of a .py file")
  is_path = name.endswith(".py") or os.sep in name
  module = _import_file(name) if is_path else _import_module(name)
  functions = [_function(name, module, each) for each in _FUNCTIONS]
  return Program(name, module, *functions)


def build_input(program: Program, mode: str, shard: Shard) -> Tuple[Any, Any]:
  """Calls the program's input_fn in the default graph.

  Args:
    program: the program.
    mode: "train", "eval" or "predict".
    shard: this worker's share.

  Returns:
    (features, labels): each a tensor, or dicts, lists and tuples of tensors; labels may be None
    where the model needs none.

  Raises:
    ProgramError: input_fn returned something else.
  """
  result = program.input_fn(mode, shard)
  if hasattr(result, "get_next"):
    raise ProgramError(
      "input_fn must return the tensors of one batch or a dataset of batches, got an iterator: "
      "return its `get_next()`")
  if hasattr(result, "element_spec"):
    _check_elements(result.element_spec)
    result = next_batch(result)
  if not (isinstance(result, (tuple, list)) and len(result) == 2):
    hint = ": is its `return` missing?" if result is None else ""
    raise ProgramError(f"input_fn must return (features, labels), got {result!r}{hint}")
  features, labels = result
  _check_tensors("features", features)
  if labels is not None:
    _check_tensors("labels", labels)
  return features, labels


def batch_size_of(features) -> tf.Tensor:
  """Returns the number of examples in a batch: the first dimension of the first tensor.

  Args:
    features: what input_fn returned; of a dict, the tensor whose name comes first.

  Returns:
    Scalar int tensor: a constant where the dimension is known while the graph is built.

  Raises:
    ProgramError: the first tensor is a scalar.
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


def _check_elements(spec):
  if not (isinstance(spec, tuple) and len(spec) == 2):
    raise ProgramError("the elements of the dataset that input_fn returns must be pairs "
                       f"(features, labels), each of one batch, got {spec!r}")


def _check_tensors(what, structure):
  leaves = tf.nest.flatten(structure)
  if not leaves:
    raise ProgramError(f"input_fn returned {what} without a tensor: {structure!r}")
  for leaf in leaves:
    if not isinstance(leaf, (tf.Tensor, tf.SparseTensor)):
      raise ProgramError(f"input_fn must return tensors; among the {what} is {leaf!r}")


def _import_file(path: str):
  path = os.path.abspath(path)
  folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
  if not os.path.isfile(path):
    there = [os.path.join(folder, each) for each in _python_files(folder)]
    raise ProgramError(f"there is no program {path}{_nearest(path, there)}")
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
  if spec is None:
    raise ProgramError(f"{path} is no .py file")
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
    there = _modules_in(parent) if parent else _own_modules()
    raise ProgramError(f"there is no module {name!r}{_nearest(missing, there)}") from None


def _import_error(name: str, error: BaseException) -> ProgramError:
  if isinstance(error, SystemExit):
    what = "it ends Python while it is imported; what starts a program belongs below " \
           '`if __name__ == "__main__":`'
  else:
    what = f"{type(error).__name__}: {error}"
  return ProgramError(f"{name} cannot be imported{_place(error)}: {what}")


def _place(error: BaseException) -> str:
  """Where an error comes from: the last line outside of Python and of what is installed."""
  if isinstance(error, SyntaxError) and error.filename:
    return f" ({error.filename}:{error.lineno})"
  frames = [frame for frame in traceback.extract_tb(error.__traceback__)
            if os.path.isabs(frame.filename) and frame.filename != __file__]
  own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)] or frames
  return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def _function(name: str, module, function: str) -> Callable:
  parameters = _FUNCTIONS[function]
  wanted = f"{function}({', '.join(parameters)})"
  found = getattr(module, function, None)
  if not callable(found):
    there = [each for each, value in vars(module).items() if inspect.isfunction(value)]
    raise ProgramError(f"{name} has no function {wanted}{_nearest(function, there)}")
  signature = inspect.signature(found)
  try:
    signature.bind(*parameters)
  except TypeError as error:
    raise ProgramError(f"{name}: {function}{signature} must take ({', '.join(parameters)}), and "
                       f"what else it takes must have a default: {error}") from None
  # They are passed by position: a name may differ, but a known one must stand at its place.
  for place, parameter in enumerate(list(signature.parameters)[:len(parameters)]):
    if parameter in parameters and parameters.index(parameter) != place:
      raise ProgramError(f"{name}: {function}{signature} takes its parameters in another order "
                         f"than ({', '.join(parameters)})")
  return found


def _nearest(name: str, there: List[str]) -> str:
  # Only the last part counts: those of one folder or package have all before it in common.
  separator = os.sep if os.sep in name else "."
  lasts = {each.rpartition(separator)[2]: each for each in sorted(there)}
  near = difflib.get_close_matches(name.rpartition(separator)[2], list(lasts), 3, 0.6)
  close = [lasts[last] for last in near]
  return f"; did you mean {' or '.join(close)}?" if close else ""


def _python_files(folder: str) -> List[str]:
  if not os.path.isdir(folder):
    return []
  return [each for each in os.listdir(folder) if each.endswith(".py") and each != "__init__.py"]


def _own_modules() -> List[str]:
  """The user's own modules: nobody means one of Python's library, or an installed one."""
  library = [os.path.realpath(sysconfig.get_path(name))
             for name in ("stdlib", "purelib", "platlib")]
  folders = [folder or os.getcwd() for folder in sys.path]
  own = [folder for folder in folders if not any(
    os.path.realpath(folder).startswith(one) for one in library)]
  return [module.name for module in pkgutil.iter_modules(own)]


def _modules_in(package: str) -> List[str]:
  """The names of the modules in a package; of all that could be imported for ""."""
  path = importlib.import_module(package).__path__ if package else None
  prefix = package + "." if package else ""
  return [module.name for module in pkgutil.iter_modules(path, prefix)]
