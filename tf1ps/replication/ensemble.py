"""An ensemble in one graph: a network on each device, and their predictions put together.

1. `in_graph` builds each network on its device, in a variable scope of its own, and on request in a
   container of its own: networks that were trained there are used as they lie there, without an
   initializer or a checkpoint.
2. `mean` or `vote` puts their predictions together.

Where a network may be slow, or die, and the others shall answer without it: queue_ensemble.py.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.state import container_scope


class Ensemble(NamedTuple):
  """Networks with one answer."""

  combined: tf.Tensor  # what all say together
  predictions: List[tf.Tensor]  # what each says, on its own device


def mean_predictions(predictions: Sequence[tf.Tensor]) -> tf.Tensor:
  """The mean of the predictions, element by element; for floating-point numbers."""
  for prediction in predictions:
    if not prediction.dtype.is_floating:
      raise ValueError("the mean is taken of floating-point predictions, got %s of %s; classes are "
                       "put together by vote" % (prediction.name, prediction.dtype.name))
  return tf.add_n(list(predictions)) / tf.cast(len(predictions), predictions[0].dtype)


def vote_predictions(predictions: Sequence[tf.Tensor]) -> tf.Tensor:
  """The class that most predictions name, element by element; of several, the lowest.

  Args:
    predictions: classes, integers of one shape and type.

  Returns:
    A tensor of that shape and type.
  """
  for prediction in predictions:
    if not prediction.dtype.is_integer:
      raise ValueError("a vote is taken of classes, integers, got %s of %s; argmax makes them" % (
        prediction.name, prediction.dtype.name))
  votes = tf.stack(list(predictions))
  # For each vote, how many are the same; then the lowest class of those that have the most.
  same = tf.reduce_sum(tf.cast(tf.equal(votes[:, tf.newaxis], votes[tf.newaxis]), tf.int32), 1)
  wins = tf.equal(same, tf.reduce_max(same, 0, keepdims=True))
  return tf.reduce_min(tf.where(wins, votes, tf.fill(tf.shape(votes), votes.dtype.max)), 0)


def in_graph_ensemble(inputs: tf.Tensor, networks: Sequence[Callable], devices: Sequence[str],
             combine: Callable = mean_predictions, names: Optional[Sequence[str]] = None,
             containers: Optional[Sequence[str]] = None) -> Ensemble:
  """Builds an ensemble in the default graph.

  Args:
    inputs: what every network gets.
    networks: a callable each: predictions from inputs. It makes its variables by `tf.get_variable`.
    devices: a device for each network: "/job:worker/task:1".
    combine: puts a list of predictions together, on the device that is in force around the call:
      `mean`, `vote`, or another function.
    names: a variable scope for each network; None: "network_0" and so on. Variables of a container
      are found by their names: give those that they were trained under.
    containers: a container for each network's variables; None: the one that is in force.

  Returns:
    An `Ensemble`.

  Raises:
    ValueError: no networks, another number of devices, names or containers, names that are not
      different; what `combine` raises.
  """
  names = ["network_%d" % i for i in range(len(networks))] if names is None else list(names)
  for what, given in (("devices", devices), ("names", names), ("containers", containers)):
    if given is not None and len(given) != len(networks):
      raise ValueError("%d networks need as many %s, got %r" % (len(networks), what, given))
  if not networks:
    raise ValueError("an ensemble needs networks, got none")
  if len(set(names)) != len(names):
    raise ValueError("the names of the networks must be different, got %r" % (names,))
  predictions = []
  for i, network in enumerate(networks):
    with contextlib.ExitStack() as stack:
      if containers is not None:
        stack.enter_context(container_scope(containers[i]))
      stack.enter_context(tf.device(devices[i]))
      stack.enter_context(tf.variable_scope(names[i]))
      predictions.append(network(inputs))
  return Ensemble(combine(predictions), predictions)
