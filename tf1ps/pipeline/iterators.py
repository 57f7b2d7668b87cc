"""Iterators that a session initialises without a word from the user.

TensorFlow's sessions for training initialise variables and tables; an iterator other than a
one-shot one is left to the user, and forgotten at the latest when a session is made anew. Here:

1. `initializers` finds what initialises the iterators of a graph, each by the initializer that was
   made first. Iterators whose initializer needs a placeholder to be fed stay the user's; so does
   the string handle of a feedable iterator, while the iterators that it may name are initialised.
2. Our sessions run them after the variables, also the local ones, and the tables: a dataset may
   read both. A session that replaces another after a failure does it again.
3. `next_batch` makes such an iterator of a program's dataset.
"""

from __future__ import annotations

import logging
from typing import Any, List, Optional, Set

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import autotuning

_log = logging.getLogger("tf1ps")
_PLACEHOLDERS = frozenset(["Placeholder", "PlaceholderV2"])


def iterator_initializers(graph: tf.Graph, already: Optional[tf.Operation] = None,
                 only_task: Optional[str] = None) -> List[tf.Operation]:
  """Finds the operations that initialise the iterators of a graph; adds nothing to it.

  Args:
    graph: the graph.
    already: an operation that has run, such as the local_init_op with what is in the collection
      TABLE_INITIALIZERS: iterators that it has initialised are left out. Or None.
    only_task: a task such as "/job:worker/task:1": iterators that name another task's device are
      left out, as those of a shared iterator that another task initialises. None: all.

  Returns:
    One operation for each iterator, in the order in which they were made.
  """
  done = behind([already]) if already is not None else set()
  first = {}  # iterator: the operation that was made first, or the one that has run
  for op in graph.get_operations():
    if op.type == "MakeIterator":
      iterator = op.inputs[1].op
      if op in done or iterator not in first:
        first[iterator] = op
  found = []
  for iterator, op in first.items():
    if op in done or not _is_on(iterator.device or op.device, only_task):
      continue
    fed = sorted(each.name for each in behind([op]) if each.type in _PLACEHOLDERS)
    if fed:
      _log.info("the iterator %s is yours to initialise: its initializer %s needs %s to be fed",
                iterator.name, op.name, ", ".join(fed))
    else:
      found.append(op)
  return found


def next_batch(dataset: tf.data.Dataset) -> Any:
  """Makes an iterator of a dataset, without autotuning, that our sessions initialise.

  Args:
    dataset: a dataset of batches.

  Returns:
    The tensors of the next batch, structured as the dataset's elements.
  """
  return tf.data.make_initializable_iterator(autotuning.without(dataset)).get_next()


def _is_on(device: str, task: Optional[str]) -> bool:
  if task is None or not device:
    return True
  spec = tf.DeviceSpec.from_string(device)
  return spec.job is None or "/job:%s/task:%d" % (spec.job, spec.task or 0) == task


def behind(ops: List[tf.Operation]) -> Set[tf.Operation]:
  """Some operations, and all that they need."""
  seen, waiting = set(), list(ops)
  while waiting:
    op = waiting.pop()
    if op not in seen:
      seen.add(op)
      waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
  return seen
