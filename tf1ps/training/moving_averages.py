"""Moving averages of the trained variables (--moving_average_decay).

An update applies the gradients first, and then moves the averages, each on the task of its
variable. A synchronous update of several workers moves them once. After update n

  average = d average + (1 - d) variable,    d = min(decay, (1 + n) / (10 + n)),

as in `tf.train.ExponentialMovingAverage(decay, num_updates=n)`, so that the average soon forgets
the initial values. The average of `w` is the variable `w/ExponentialMovingAverage`.
Evaluation, prediction and export restore it in the place of `w` (checkpoint/restoring.py).
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import moving_averages_here
from tf1ps.program import ModelSpecError
from tf1ps.transfer import WrappingOptimizer


def build_moving_average(decay: float,
                         global_step: tf.Variable) -> tf.train.ExponentialMovingAverage:
  """Builds the moving average of the default graph, whose decay follows the global step.

  Raises ModelSpecError if the model has moving averages of its own.
  """
  own = moving_averages_here()
  if own:
    raise ModelSpecError(
      "--moving_average_decay=%g, but the model has moving averages of its own, such as %s: leave "
      "out the flag, or the model's averages" % (decay, own[0].op.name))
  graph = tf.get_default_graph()
  with tf.control_dependencies(None), graph.colocate_with(global_step.op):
    # The number of updates, including this update. The update waits for this read before it raises
    # the global step.
    updates = tf.add(tf.cast(global_step.read_value(), tf.int64), 1, name="updates")
  return tf.train.ExponentialMovingAverage(decay, updates)


class AveragedOptimizer(WrappingOptimizer):
  """Moves the averages of the variables after each update of another optimizer."""

  def __init__(self, opt: tf.train.Optimizer, averages: tf.train.ExponentialMovingAverage):
    """Creates an optimizer around `opt`; raises TypeError if `opt` is not an optimizer."""
    super().__init__(opt, False, "Averaged")
    self._averages = averages

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    """Applies gradients like the inner optimizer, then moves the averages, then counts."""
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
    done = self._opt.apply_gradients(pairs, name=name)
    done = getattr(done, "op", done)
    by_device = {}
    for _, variable in pairs:
      by_device.setdefault(variable.device, []).append(variable)
    averaged = []
    for device, variables in by_device.items():
      # Waits only for the updates on the same device: waiting for all updates would cost messages.
      here = [op for op in done.control_inputs if op.device == device]
      with tf.control_dependencies(here or [done]), tf.device(device):
        averaged.append(self._averages.apply(variables))
    done = tf.group(done, *averaged)
    if global_step is None:
      return done
    with tf.control_dependencies([done]), tf.colocate_with(global_step.op):
      return tf.assign_add(global_step, 1, use_locking=True).op
