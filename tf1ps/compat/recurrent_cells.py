"""Recurrent cells: TensorFlow 2 has `tf.nn.rnn_cell`, and raises when a program uses a cell.

`LSTMCell` and `GRUCell` compute the same as TensorFlow 1's `BasicLSTMCell` and `GRUCell`, from
variables of the same last names and shapes, so that their checkpoints can be restored:

  LSTM   `<name>/kernel` [depth + units, 4 units], `<name>/bias` [4 units]; the gates in the order
         input, candidate, forget, output; the state is (c, h)
  GRU    `<name>/gates/kernel` [depth + units, 2 units] (reset, update), `<name>/candidate/kernel`
         [depth + units, units], a bias with each; the state is the output

A cell is built once, by `build`, and may then be called for any number of time steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple, Union

import tensorflow.compat.v1 as tf


class LSTMState(NamedTuple):
  """The state of an LSTM."""

  c: tf.Tensor  # [batch, units]: the memory
  h: tf.Tensor  # [batch, units]: the output


class _Cell:
  """The common part of both cells.

  Attributes:
    units: of the output.
    variables: the variables that `build` made; None before.
  """

  def __init__(self, units: int, name: str):
    """Describes a cell with `units` outputs and the scope `name`; nothing is built yet."""
    if units < 1:
      raise ValueError("a cell needs at least one unit, got %r" % (units,))
    self.units = units
    self.variables: Any = None  # a tuple, when `build` has made them
    self._name = name

  def _variables(self, depth, columns, bias):
    return (
      tf.get_variable("kernel", [depth + self.units, columns]),
      tf.get_variable("bias", [columns], initializer=tf.constant_initializer(bias)))


class LSTMCell(_Cell):
  """A long short-term memory, TensorFlow 1's `BasicLSTMCell`."""

  def __init__(self, units: int, name: str = "lstm", forget_bias: float = 1.0):
    """Describes the cell, like `_Cell`; `forget_bias` is added to the forget gate."""
    super().__init__(units, name)
    self._forget_bias = forget_bias

  def build(self, depth: int) -> None:
    """Makes the variables where that has not been done, for inputs of `[batch, depth]`."""
    if self.variables is None:
      with tf.variable_scope(self._name):
        self.variables = self._variables(depth, 4 * self.units, 0.0)

  def zero_state(self, batch: Union[int, tf.Tensor]) -> LSTMState:
    """The state before the first time step; `batch` is a number or a scalar tensor."""
    return LSTMState(tf.zeros([batch, self.units]), tf.zeros([batch, self.units]))

  def __call__(self, inputs: tf.Tensor, state: LSTMState) -> Tuple[tf.Tensor, LSTMState]:
    """One time step: (outputs, state) from inputs `[batch, depth]` and the state before."""
    kernel, bias = self.variables
    gates = tf.matmul(tf.concat([inputs, state.h], 1), kernel) + bias
    take, candidate, keep, show = tf.split(gates, 4, axis=1)
    c = (state.c * tf.sigmoid(keep + self._forget_bias) + tf.sigmoid(take) * tf.tanh(candidate))
    h = tf.tanh(c) * tf.sigmoid(show)
    return h, LSTMState(c, h)


class GRUCell(_Cell):
  """A gated recurrent unit, TensorFlow 1's `GRUCell`."""

  def __init__(self, units: int, name: str = "gru"):
    """Describes the cell, like `_Cell`."""
    super().__init__(units, name)

  def build(self, depth: int) -> None:
    """Makes the variables where that has not been done, for inputs of `[batch, depth]`."""
    if self.variables is None:
      with tf.variable_scope(self._name):
        with tf.variable_scope("gates"):
          gates = self._variables(depth, 2 * self.units, 1.0)
        with tf.variable_scope("candidate"):
          self.variables = gates + self._variables(depth, self.units, 0.0)

  def zero_state(self, batch: Union[int, tf.Tensor]) -> tf.Tensor:
    """The state before the first time step; `batch` is a number or a scalar tensor."""
    return tf.zeros([batch, self.units])

  def __call__(self, inputs: tf.Tensor, state: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """One time step: (outputs, state) from inputs `[batch, depth]` and the state before."""
    gate_kernel, gate_bias, kernel, bias = self.variables
    gates = tf.sigmoid(tf.matmul(tf.concat([inputs, state], 1), gate_kernel) + gate_bias)
    reset, update = tf.split(gates, 2, axis=1)
    candidate = tf.tanh(tf.matmul(tf.concat([inputs, reset * state], 1), kernel) + bias)
    state = update * state + (1 - update) * candidate
    return state, state
