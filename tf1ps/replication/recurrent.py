"""Recurrent layers, one on each device, which work at the same time.

Layer k at time t needs layer k - 1 at time t and itself at t - 1. So while layer k is at t, layer
k - 1 can be at t + 1 already, on its own device: with n devices and many time steps, n layers take
the time of one. One output per time step and layer travels.

  unrolled_recurrent   a piece of graph for each time step; their number must be known
  looped_recurrent     one piece, in a `tf.while_loop`; the number may differ in each run

TensorFlow runs each operation as soon as it has its inputs, so the graph only has to leave this
order open. The iterations of a loop overlap, `parallel_iterations` of them at most. The operations
that carry a state from one iteration to the next must be placed beside the state. By default they
are all on one device, and each state makes a round trip to it at each time step.

`looped_recurrent` needs TensorFlow 1's control flow (`tf.disable_v2_behavior()`): with TensorFlow
2's, 2.x refuses gradients that are colocated with a loop over several devices.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.graph import is_control_flow


class Recurrent(NamedTuple):
  """Recurrent layers over time."""

  outputs: tf.Tensor  # [time, batch, units of the last layer], on the last device
  states: List  # of each layer after the last time step


def unrolled_recurrent(inputs: tf.Tensor, cells: Sequence, devices: Sequence[str],
                       states: Optional[Sequence] = None) -> Recurrent:
  """Builds recurrent layers with a piece of graph for each time step; returns a `Recurrent`.

  Args:
    inputs: `[time, batch, depth]`, of a known time and depth.
    cells: a cell per layer: of tf1ps.compat, or another object with the same three methods.
    devices: a device for each layer.
    states: of each layer before the first time step; None: zeros.

  Raises:
    ValueError: another number of devices than of cells, or an unknown time or depth.
  """
  times = _static(inputs, 0, "time (or use looped_recurrent)")
  states = _begin(inputs, cells, devices, states)
  with tf.device(devices[0]):
    steps = tf.unstack(inputs, times)
  outputs = []
  for step in steps:
    step, states = _layers(step, cells, devices, states)
    outputs.append(step)
  with tf.device(devices[-1]):
    return Recurrent(tf.stack(outputs), states)


def looped_recurrent(inputs: tf.Tensor, cells: Sequence, devices: Sequence[str],
                     states: Optional[Sequence] = None, parallel_iterations: int = 10) -> Recurrent:
  """Builds recurrent layers in a while loop over time; returns a `Recurrent`.

  Args:
    inputs: `[time, batch, depth]`, of a known depth.
    cells: as for `unrolled_recurrent`.
    devices: as for `unrolled_recurrent`.
    states: as for `unrolled_recurrent`.
    parallel_iterations: the number of time steps in progress; at least the number of layers.

  Raises:
    ValueError: as for `unrolled_recurrent`, but the time may be unknown; too few parallel
      iterations; TensorFlow 2's control flow.
  """
  if tf.control_flow_v2_enabled():
    raise ValueError("looped_recurrent needs TensorFlow 1's control flow. Call "
                     "tf.disable_v2_behavior() or tf.disable_control_flow_v2() first")
  if parallel_iterations < len(cells):
    raise ValueError("parallel_iterations is %d, and must be at least the number of layers, %d, or "
                     "they wait for each other" % (parallel_iterations, len(cells)))
  states = _begin(inputs, cells, devices, states)
  with tf.device(devices[0]):
    times = tf.shape(inputs)[0]
    read = tf.TensorArray(inputs.dtype, times).unstack(inputs)
    first = tf.constant(0)
  with tf.device(devices[-1]):
    written = tf.TensorArray(inputs.dtype, times)

  def goes_on(time, *unused):
    with tf.device(devices[0]):
      return time < times

  def body(time, states, written):
    with tf.device(devices[0]):
      step = read.read(time)
      following = time + 1
    step.set_shape(inputs.shape[1:])
    step, states = _layers(step, cells, devices, states)
    with tf.device(devices[-1]):
      return following, states, written.write(time, step)

  with tf.device(_with_input):
    _, states, written = tf.while_loop(
      goes_on, body, (first, states, written), parallel_iterations=parallel_iterations)
  with tf.device(devices[-1]):
    return Recurrent(written.stack(), list(states))


def _layers(step, cells, devices, states):
  """All layers at one time step; returns the last layer's output, and all states."""
  following = []
  for cell, device, state in zip(cells, devices, states):
    with tf.device(device):
      step, state = cell(step, state)
    following.append(state)
  return step, following


def _begin(inputs, cells, devices, states):
  """Checks the arguments, has the cells make their variables, and returns the first states."""
  if not cells or len(cells) != len(devices):
    raise ValueError("each layer needs a device: got %d cells and %d devices" % (
      len(cells), len(devices)))
  if states is not None and len(states) != len(cells):
    raise ValueError("each layer needs a state: got %d cells and %d states" % (
      len(cells), len(states)))
  depth, zeros = _static(inputs, 2, "depth"), []
  for cell, device in zip(cells, devices):
    with tf.device(device):
      cell.build(depth)
      if states is None:
        batch = _known(inputs, 1)
        zeros.append(cell.zero_state(tf.shape(inputs)[1] if batch is None else batch))
    depth = cell.units
  return zeros if states is None else list(states)


def _known(inputs, axis):
  size = inputs.shape.with_rank(3)[axis]
  return getattr(size, "value", size)  # TensorFlow 1 wraps it


def _static(inputs, axis, what):
  size = _known(inputs, axis)
  if size is None:
    raise ValueError("the inputs must be [time, batch, depth] of a known %s, got the shape %s" % (
      what, inputs.shape))
  return size


def _with_input(op):
  """A device function: places operations that carry a state between iterations beside the state.

  It does not place the counter of the loop, a scalar: gradients store it beside its users.
  """
  is_state = op.type == "Identity" and not op.device and op.inputs[0].shape.ndims != 0
  return op.inputs[0].device if is_state or is_control_flow(op) else op.device
