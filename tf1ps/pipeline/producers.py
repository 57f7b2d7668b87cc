"""The producers and batchers of `tf.train`, with their counters and queues on the worker.

They have the names and arguments of TensorFlow's functions, and call them: `string_input_producer`,
`input_producer`, `range_input_producer`, `slice_input_producer`; `batch`, `batch_join`,
`shuffle_batch`, `shuffle_batch_join` and their `maybe_` forms. The differences:

1. Everything that a call builds is on the worker (on_worker.py). This includes the counter of
   `num_epochs`, which under `tf.train.replica_device_setter` would be one variable for all workers.
   `worker_device=` sets the worker, and overrides a device scope around the call.
2. Arguments with which the graph would fail or hang in a run are refused when the graph is built.

The counter is a local variable, and every queue needs its runner. Monitored sessions initialise
local variables and start runners. If you use another session, run
`tf.local_variables_initializer()` and call `tf.train.start_queue_runners`.
"""

from __future__ import annotations

import inspect
import numbers
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import on_worker


def _wrapped(name: str, check: Callable[[str, dict], None]) -> Callable[..., Any]:
  """Returns tf.train's function `name` with checked arguments, and its operations on the worker.

  `check` takes the function's name and a dict of its arguments. It may replace a bad argument, or
  raise an error for it.
  """
  stock = getattr(tf.train, name)
  signature = inspect.signature(stock)

  def call(*args, worker_device=None, **kwargs):
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    check(name, bound.arguments)
    with on_worker.scope(worker_device):
      return stock(*bound.args, **bound.kwargs)

  shown = signature.replace(parameters=[
    *signature.parameters.values(),
    inspect.Parameter("worker_device", inspect.Parameter.KEYWORD_ONLY, default=None)])
  call.__signature__ = shown  # type: ignore[attr-defined]  # inspect looks for it
  call.__name__ = call.__qualname__ = name
  call.__doc__ = (
    "TensorFlow's `tf.train.%s`, all of it on the worker.\n\n"
    "  Args:\n    worker_device: such as \"/job:worker/task:0\"; None: the worker\n      "
    "of the device setter or server, as on_worker.py describes.\n"
    "    The others are those of `tf.train.%s`.\n\n"
    "  Raises:\n    ValueError, TypeError: an argument with which the pipeline could not run." % (
      name, name))
  return call


def _at_least_one(function, arguments, *names):
  """Refuses values below 1, if they are known while the graph is built."""
  for name in names:
    value = arguments.get(name)
    if isinstance(value, numbers.Number) and value < 1:
      raise ValueError("%s: %s must be at least 1, got %r" % (function, name, value))


def _check_producer(function, arguments):
  _at_least_one(function, arguments, "num_epochs", "capacity", "limit")


def _check_strings(function, arguments):
  _check_producer(function, arguments)
  given = arguments["string_tensor"]
  if not tf.is_tensor(given):
    strings = np.array(given, dtype=object)
    wrong = [element for element in strings.ravel() if not isinstance(element, (str, bytes))]
    if wrong:
      raise TypeError("%s takes strings such as the names of files, got %r" % (function, wrong[0]))
    if strings.ndim != 1 or not strings.size:
      raise ValueError("%s takes a list of at least one string, got %s" % (
        function, "an empty list" if not strings.size else "the shape %s" % (strings.shape,)))
    arguments["string_tensor"] = list(strings)
  elif given.dtype.base_dtype != tf.string:
    raise TypeError("%s takes strings, got a tensor of %s" % (function, given.dtype.name))


def _check_slices(function, arguments):
  _check_producer(function, arguments)
  if tf.is_tensor(arguments["tensor_list"]) or not len(arguments["tensor_list"]):
    raise ValueError("%s takes a list of at least one tensor, got %r" % (
      function, arguments["tensor_list"]))
  sizes = [_rows(function, tensor) for tensor in arguments["tensor_list"]]
  known = sorted({size for size in sizes if size is not None})
  if len(known) > 1:
    raise ValueError("%s takes a slice of each tensor at a time, so all must have the same first "
                     "dimension; got %s" % (function, ", ".join(map(str, sizes))))
  if known == [0]:
    raise ValueError("%s got tensors without a row" % function)


def _rows(function, tensor):
  """Returns the first dimension of a tensor or an array; None if it is unknown."""
  shape = tensor.shape if tf.is_tensor(tensor) else tf.TensorShape(np.shape(tensor))
  if shape.rank == 0:
    raise ValueError("%s takes tensors of at least one dimension, got %r" % (function, tensor))
  return None if shape.rank is None else shape.as_list()[0]


def _check_batch(function, arguments):
  _at_least_one(function, arguments, "batch_size", "num_threads", "capacity")


def _check_shuffle(function, arguments):
  _check_batch(function, arguments)
  capacity, least = arguments["capacity"], arguments["min_after_dequeue"]
  if least < 0 or capacity <= least:
    raise ValueError("%s: capacity must be greater than min_after_dequeue, the part of the queue "
                     "that shuffles; got capacity %r and min_after_dequeue %r" % (
                       function, capacity, least))


string_input_producer = _wrapped("string_input_producer", _check_strings)
input_producer = _wrapped("input_producer", _check_producer)
range_input_producer = _wrapped("range_input_producer", _check_producer)
slice_input_producer = _wrapped("slice_input_producer", _check_slices)
batch = _wrapped("batch", _check_batch)
batch_join = _wrapped("batch_join", _check_batch)
shuffle_batch = _wrapped("shuffle_batch", _check_shuffle)
shuffle_batch_join = _wrapped("shuffle_batch_join", _check_shuffle)
maybe_batch = _wrapped("maybe_batch", _check_batch)
maybe_batch_join = _wrapped("maybe_batch_join", _check_batch)
maybe_shuffle_batch = _wrapped("maybe_shuffle_batch", _check_shuffle)
maybe_shuffle_batch_join = _wrapped("maybe_shuffle_batch_join", _check_shuffle)
