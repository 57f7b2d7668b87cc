"""Replaces tensors of a finished graph by stand-ins, even if a run feeds the replaced tensors.

A feature that packs or copies values gives operations another tensor instead of the tensor that the
program built. The program does not know about this: a run may feed the original tensor, and then
the operations must get the fed value. `stand_in` replaces a tensor and notes the replacement.
`fed_stand_ins` says which tensors a session has to feed in addition.
"""

from __future__ import annotations

import weakref
from typing import Dict, Iterable, List

import tensorflow.compat.v1 as tf

from tf1ps.compat import replace_input

# {graph: {the name of a replaced tensor: the names of its stand-ins}}.
_noted: "weakref.WeakKeyDictionary[tf.Graph, Dict[str, List[str]]]" = weakref.WeakKeyDictionary()


def stand_in(tensor: tf.Tensor, by: tf.Tensor, consumers: Iterable[tf.Operation]) -> int:
  """Replaces a tensor among the inputs of operations; returns the number of replaced inputs.

  `by` has the type of `tensor`. Call it before a session runs any of the operations.
  """
  count = replace_input(tensor, by, consumers)
  if count:
    _noted.setdefault(tensor.graph, {}).setdefault(tensor.name, []).append(by.name)
  return count


def fed_stand_ins(graph: tf.Graph, fed: Iterable[object]) -> Dict[str, object]:
  """Returns {the name of a stand-in of a fed tensor: the key of the feed}.

  `fed` has the keys of a feed: tensors, variables or names of tensors.
  """
  keys: Dict[str, object] = {}
  noted = _noted.get(graph)
  if not noted:
    return keys
  for key in fed:
    try:
      name = graph.as_graph_element(key, allow_operation=False).name
    except (TypeError, ValueError, KeyError):
      continue  # several tensors, such as a SparseTensor, or a mistake that the session reports
    waiting = [name]
    while waiting:  # a stand-in may have a stand-in itself
      names = noted.get(waiting.pop(), [])
      keys.update((stand_in, key) for stand_in in names)
      waiting += names
  return keys
