"""An ensemble in one graph: a network on each device, and their combined predictions.

1. `in_graph_ensemble` builds each network on its device, in its own variable scope, and on request
   in its own container: networks that were trained there need neither initializer nor checkpoint.
2. `mean_predictions` or `vote_predictions` combines their predictions. Both also combine the numpy
   predictions of a queue-linked ensemble.

Where a network may be slow or die, and the others shall answer without it, see queue_ensemble.py.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import container_scope

# Tensors of one shape and type, or an array [predictions, ...].
Predictions = Union[Sequence[tf.Tensor], np.ndarray]


class Ensemble(NamedTuple):
  """Networks with one answer."""

  combined: tf.Tensor  # the combined prediction
  predictions: List[tf.Tensor]  # the prediction of each network, on its own device


def mean_predictions(predictions: Predictions) -> Union[tf.Tensor, np.ndarray]:
  """The mean of the predictions, element by element.

  Args:
    predictions: floating-point tensors of one shape and type, or an array `[predictions, ...]`.

  Returns:
    A tensor, or an array, of one prediction's shape.
  """
  if isinstance(predictions, np.ndarray):
    return predictions.mean(0)
  for prediction in predictions:
    if not prediction.dtype.is_floating:
      raise ValueError("%s is of the type %s, and the mean is taken of floating-point predictions. "
                       "Combine classes by vote_predictions." % (
                         prediction.name, prediction.dtype.name))
  return tf.add_n(list(predictions)) / tf.cast(len(predictions), predictions[0].dtype)


def vote_predictions(predictions: Predictions) -> Union[tf.Tensor, np.ndarray]:
  """The most frequent class, element by element; of several, the lowest.

  Args:
    predictions: classes, integer tensors of one shape and type, or an array `[predictions, ...]`.

  Returns:
    A tensor, or an array, of one prediction's shape and type.
  """
  if isinstance(predictions, np.ndarray):
    same = (predictions[:, np.newaxis] == predictions[np.newaxis]).sum(0)
    return np.where(same == same.max(0), predictions, np.iinfo(predictions.dtype).max).min(0)
  for prediction in predictions:
    if not prediction.dtype.is_integer:
      raise ValueError("%s is of the type %s, and a vote is taken of classes, integers. Make them "
                       "by argmax." % (prediction.name, prediction.dtype.name))
  votes = tf.stack(list(predictions))
  # For each vote, the number of equal ones; then the lowest class of those that have the most.
  same = tf.reduce_sum(tf.cast(tf.equal(votes[:, tf.newaxis], votes[tf.newaxis]), tf.int32), 1)
  wins = tf.equal(same, tf.reduce_max(same, 0, keepdims=True))
  return tf.reduce_min(tf.where(wins, votes, tf.fill(tf.shape(votes), votes.dtype.max)), 0)


def in_graph_ensemble(inputs: tf.Tensor, networks: Sequence[Callable], devices: Sequence[str],
                      combine: Callable = mean_predictions, names: Optional[Sequence[str]] = None,
                      containers: Optional[Sequence[str]] = None) -> Ensemble:
  """Builds an ensemble in the default graph; returns an `Ensemble`.

  Args:
    inputs: the input of every network.
    networks: a callable per network: predictions from inputs. It makes its variables by
      `tf.get_variable`.
    devices: a device for each network, such as "/job:worker/task:1".
    combine: combines a list of predictions, on the device that is in force around the call:
      `mean_predictions`, `vote_predictions`, or another function.
    names: a variable scope for each network; None: "network_0" and so on. Variables of a container
      are found by their names: give the names that they were trained under.
    containers: a container for each network's variables; None: the one that is in force.

  Raises:
    ValueError: no networks, another number of devices, names or containers, equal names; and the
      errors of `combine`.
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
