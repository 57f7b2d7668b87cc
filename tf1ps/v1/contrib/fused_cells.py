"""LSTMs that were single operations in `tf.contrib.rnn`; they have the same variables."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def LSTMBlockCell(num_units, forget_bias=1.0, cell_clip=None,  # noqa: N802  TensorFlow's name
                  use_peephole=False, dtype=None, reuse=None, name="lstm_cell"):
  """Returns a `tf.nn.rnn_cell.LSTMCell`, which computes the same from the same variables.

  Args:
    num_units: the number of units of the output.
    forget_bias: is added to the forget gate.
    cell_clip: the largest absolute value in the memory; None or less than 0 for no limit.
    use_peephole: whether the gates see the memory.
    dtype: the type of the variables.
    reuse: whether the variables exist already.
    name: the name of the cell.
  """
  if cell_clip is not None and cell_clip < 0:
    cell_clip = None
  return tf.nn.rnn_cell.LSTMCell(
    num_units, use_peepholes=use_peephole, cell_clip=cell_clip, forget_bias=forget_bias,
    reuse=reuse, name=name, dtype=dtype)


class LSTMBlockFusedCell:
  """An LSTM over whole sequences, `[length, batch, depth]`.

  Args:
    num_units: the number of units of the output.
    forget_bias: is added to the forget gate.
    cell_clip: the largest absolute value in the memory; None for no limit.
    use_peephole: whether the gates see the memory.
    reuse: whether the variables exist already.
    dtype: the type of the variables.
    name: the name of the scope of the variables.
  """

  def __init__(self, num_units, forget_bias=1.0, cell_clip=None, use_peephole=False, reuse=None,
               dtype=None, name="lstm_fused_cell"):
    self.num_units = num_units
    self._fixed = {"forget_bias": forget_bias, "use_peephole": use_peephole,
                   "cell_clip": -1.0 if cell_clip is None else cell_clip}
    self._reuse, self._dtype, self._name = reuse, dtype, name
    self._weights = None

  def __call__(self, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
    """Returns the outputs, `[length, batch, units]`, and the last state.

    Args:
      inputs: `[length, batch, depth]`, or a list of `[batch, depth]`.
      initial_state: the memory and the output before the first element; None for zeros.
      dtype: the type of the initial state, if no initial state is given.
      sequence_length: `[batch]`; None for the whole length.
      scope: the scope of the variables.
    """
    is_list = isinstance(inputs, (list, tuple))
    inputs = tf.stack(inputs) if is_list else tf.convert_to_tensor(inputs)
    length, size = tf.shape(inputs)[0], tf.shape(inputs)[1]
    if initial_state is None:
      initial_state = [tf.zeros([size, self.num_units], dtype or inputs.dtype)] * 2
    weights = self._build(inputs.shape.dims[2].value, inputs.dtype, scope)
    longest = length if sequence_length is None else tf.reduce_max(sequence_length)
    result = tf.raw_ops.BlockLSTM(
      seq_len_max=tf.cast(longest, tf.int64), x=inputs, cs_prev=initial_state[0],
      h_prev=initial_state[1], **weights, **self._fixed)
    memory, outputs = result.cs, result.h
    if sequence_length is None:
      last = memory[-1], outputs[-1]
    else:
      inside = tf.transpose(tf.sequence_mask(sequence_length, length, outputs.dtype))
      outputs *= inside[:, :, tf.newaxis]
      at = tf.stack([tf.cast(sequence_length, tf.int32), tf.range(size)], 1)
      last = [tf.gather_nd(tf.concat([first[tf.newaxis], values], 0), at)
              for first, values in zip(initial_state, (memory, outputs))]
    if is_list:
      outputs = tf.unstack(outputs)
    return outputs, tf.nn.rnn_cell.LSTMStateTuple(*last)

  def _build(self, depth, dtype, scope):
    """Makes the variables at the first call."""
    if self._weights is None:
      units, dtype = self.num_units, self._dtype or dtype
      with tf.variable_scope(scope, default_name=self._name, reuse=self._reuse):
        self._weights = {
          "w": tf.get_variable("kernel", [depth + units, 4 * units], dtype),
          "b": tf.get_variable("bias", [4 * units], dtype, tf.zeros_initializer())}
        for key, name in (("wci", "w_i_diag"), ("wcf", "w_f_diag"), ("wco", "w_o_diag")):
          self._weights[key] = (tf.get_variable(name, [units], dtype)
                                if self._fixed["use_peephole"] else tf.zeros([units], dtype))
    return self._weights


class TimeReversedFusedRNN:
  """Makes a fused cell read sequences backwards; returns the outputs in the sequences' order.

  Args:
    cell: the fused cell, such as `LSTMBlockFusedCell`.
  """

  def __init__(self, cell):
    self._cell = cell

  def __call__(self, inputs, initial_state=None, dtype=None, sequence_length=None, scope=None):
    """Returns the outputs and the last state, like the cell."""
    outputs, state = self._cell(
      _reversed(inputs, sequence_length), initial_state=initial_state, dtype=dtype,
      sequence_length=sequence_length, scope=scope)
    return _reversed(outputs, sequence_length), state


def _reversed(values, lengths):
  if isinstance(values, (list, tuple)):
    return list(reversed(values))
  if lengths is None:
    return tf.reverse(values, [0])
  return tf.reverse_sequence(values, lengths, seq_axis=0, batch_axis=1)
