"""Makes each copy of a function call draw different random numbers from the original call.

The operations of a function are in the graph's library, and all calls share them. `tf.function`,
and `tf.cond` and `tf.while_loop` of TensorFlow 2, make such functions. So the copy of a call that
draws random numbers from a seed calls a copy of the function, which has its own seeds.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List

import tensorflow.compat.v1 as tf


def renumber_seed(node: tf.NodeDef, number: int) -> None:
  """Makes a node draw other random numbers if it draws from a seed; number 0 changes nothing."""
  if _draws_from_seed(node):
    node.attr["seed2"].i += number


def calls_functions(nodes: Iterable[tf.NodeDef]) -> bool:
  """Returns whether nodes call functions of the library."""
  return any(True for node in nodes for _ in _calls(node))


class RandomFunctions:
  """The functions of a library that draw random numbers from a seed, directly or by a call."""

  def __init__(self, library):
    """Finds the functions in a `FunctionDefLibrary`."""
    bodies = {body.signature.name: body for body in library.function}
    callers: Dict[str, List[str]] = {}
    waiting = []
    for name, body in bodies.items():
      if any(_draws_from_seed(node) for node in body.node_def):
        waiting.append(name)
      for node in body.node_def:
        for call in _calls(node):
          callers.setdefault(call.name, []).append(name)
    self._bodies = {}
    while waiting:
      name = waiting.pop()
      if name not in self._bodies:
        self._bodies[name] = bodies[name]
        waiting += callers.get(name, ())

  def renumber(self, definition: tf.GraphDef, number: int) -> None:
    """Makes the calls in a graph call copies of functions, which draw other random numbers.

    Args:
      definition: the graph; its library gets the copies.
      number: the number of the copies. Copies of the same number draw the same random numbers.
    """
    made, waiting = set(), self._rename_calls(definition.node, number)
    while waiting:
      name = waiting.pop()
      if name in made:
        continue
      made.add(name)
      body = definition.library.function.add()
      body.CopyFrom(self._bodies[name])
      body.signature.name = _name(name, number)
      for node in body.node_def:
        renumber_seed(node, number)
      waiting += self._rename_calls(body.node_def, number)

  def _rename_calls(self, nodes, number) -> List[str]:
    """Makes nodes call the copies; returns the names of the functions that they called before."""
    called = []
    for node in nodes:
      for call in _calls(node):
        if call.name in self._bodies:
          called.append(call.name)
          call.name = _name(call.name, number)
    return called


def _name(function: str, number: int) -> str:
  return "%s_tf1ps_copy_%d" % (function, number)


def _calls(node) -> Iterator:
  for attr in node.attr.values():
    if attr.HasField("func"):
      yield attr.func
    yield from attr.list.func


def _draws_from_seed(node) -> bool:
  return "seed2" in node.attr and bool(node.attr["seed"].i or node.attr["seed2"].i)
