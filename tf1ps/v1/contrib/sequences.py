"""Losses of sequences, repeated batches, and stacked recurrent layers."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_TINY = 1e-12  # keeps a mean over no elements at 0


def sequence_loss(logits, targets, weights, average_across_timesteps=True,
                  average_across_batch=True, sum_over_timesteps=False, sum_over_batch=False,
                  softmax_loss_function=None, name=None):
  """The weighted cross entropy of sequences.

  Args:
    logits: `[batch, length, classes]`.
    targets: `[batch, length]`, integers.
    weights: `[batch, length]`; 0 leaves an element out.
    average_across_timesteps: whether to divide the sum over the length by its weights.
    average_across_batch: whether to divide the sum over the batch by its weights.
    sum_over_timesteps: whether to divide the sum over the length by the number of weights that are
      not 0.
    sum_over_batch: the same for the sum over the batch.
    softmax_loss_function: takes `labels` and `logits`, in place of the softmax cross entropy.
    name: of the operations.

  Returns:
    A scalar, or a value for each element of the dimensions that are not summed.
  """
  if (average_across_timesteps and sum_over_timesteps) or (average_across_batch and sum_over_batch):
    raise ValueError("A loss is averaged or summed over a dimension, not both.")
  loss_function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
  with tf.name_scope(name, "sequence_loss", [logits, targets, weights]):
    classes = tf.shape(logits)[2]
    losses = loss_function(labels=tf.reshape(targets, [-1]),
                           logits=tf.reshape(logits, [-1, classes]))
    losses = tf.reshape(losses, tf.shape(weights)) * weights
    losses.set_shape(weights.shape)
    means = [axis for axis, mean in ((0, average_across_batch), (1, average_across_timesteps))
             if mean]
    sums = [axis for axis, is_sum in ((0, sum_over_batch), (1, sum_over_timesteps)) if is_sum]
    if not means + sums:
      return losses
    total = tf.reduce_sum(losses, means + sums)
    if sums:
      count = tf.reduce_sum(tf.cast(tf.not_equal(weights, 0), losses.dtype), means + sums)
      return tf.div_no_nan(total, count)
    return total / (tf.reduce_sum(weights, means) + _TINY)


def tile_batch(t, multiplier, name=None):
  """Repeats each element of a batch, or of a structure of batches, `multiplier` times."""
  def tile(tensor):
    tensor = tf.convert_to_tensor(tensor)
    with tf.name_scope(name, "tile_batch", [tensor]):
      times = [1, multiplier] + [1] * (len(tensor.shape) - 1)
      tiled = tf.tile(tf.expand_dims(tensor, 1), times)
      size = tensor.shape.dims[0].value
      result = tf.reshape(tiled, tf.concat([[-1], tf.shape(tensor)[1:]], 0))
      result.set_shape(tf.TensorShape([size and size * multiplier]).concatenate(tensor.shape[1:]))
      return result
  return tf.nest.map_structure(tile, t)


def hardmax(logits, name=None):
  """1 where a row of logits, `[batch, classes]`, is largest, and 0 elsewhere."""
  with tf.name_scope(name, "Hardmax", [logits]):
    logits = tf.convert_to_tensor(logits)
    return tf.one_hot(tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=logits.dtype)


def transpose_batch_time(x):
  """Exchanges the first two dimensions; a tensor with fewer dimensions stays unchanged."""
  x = tf.convert_to_tensor(x)
  if x.shape.ndims is not None and x.shape.ndims < 2:
    return x
  order = tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0)
  result = tf.transpose(x, order)
  if x.shape.ndims is not None:
    result.set_shape(tf.TensorShape([x.shape[1], x.shape[0]]).concatenate(x.shape[2:]))
  return result


def stack_bidirectional_dynamic_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None,
                                    initial_states_bw=None, dtype=None, sequence_length=None,
                                    parallel_iterations=None, time_major=False, scope=None,
                                    swap_memory=False):
  """Stacked bidirectional layers; each layer reads both outputs of the layer below.

  Args:
    cells_fw: a cell for each layer, forwards.
    cells_bw: a cell for each layer, backwards.
    inputs: `[batch, length, depth]`, or `[length, batch, depth]` with time_major.
    initial_states_fw: a state for each layer; None for zeros.
    initial_states_bw: the same, backwards.
    dtype: the type of the states, if no initial states are given.
    sequence_length: `[batch]`.
    parallel_iterations: of the loops.
    time_major: whether the length is the first dimension.
    scope: the scope's name, instead of stack_bidirectional_rnn.
    swap_memory: whether the loops may move tensors to the host's memory.

  Returns:
    The outputs of the last layer, both directions side by side, and the last states of each
    layer, forwards and backwards.
  """
  def layer(inputs, cell_fw, cell_bw, state_fw, state_bw):
    outputs, (last_fw, last_bw) = tf.nn.bidirectional_dynamic_rnn(
        cell_fw, cell_bw, inputs, initial_state_fw=state_fw, initial_state_bw=state_bw,
        sequence_length=sequence_length, parallel_iterations=parallel_iterations, dtype=dtype,
        swap_memory=swap_memory, time_major=time_major)
    return tf.concat(outputs, 2), last_fw, last_bw
  return _stack(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def stack_bidirectional_rnn(cells_fw, cells_bw, inputs, initial_states_fw=None,
                            initial_states_bw=None, dtype=None, sequence_length=None, scope=None):
  """Like `stack_bidirectional_dynamic_rnn`, for a list of inputs, each `[batch, depth]`."""
  def layer(inputs, cell_fw, cell_bw, state_fw, state_bw):
    return tf.nn.static_bidirectional_rnn(
        cell_fw, cell_bw, inputs, state_fw, state_bw, sequence_length=sequence_length, dtype=dtype)
  return _stack(layer, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope)


def _stack(layer, cells_fw, cells_bw, inputs, states_fw, states_bw, scope):
  if not cells_fw or len(cells_fw) != len(cells_bw):
    raise ValueError("There must be as many cells forwards as backwards, got %d and %d."
                     % (len(cells_fw or ()), len(cells_bw or ())))
  states_fw, states_bw = [states or [None] * len(cells_fw) for states in (states_fw, states_bw)]
  last = []
  with tf.variable_scope(scope or "stack_bidirectional_rnn"):
    for index, parts in enumerate(zip(cells_fw, cells_bw, states_fw, states_bw)):
      with tf.variable_scope("cell_%d" % index):
        inputs, last_fw, last_bw = layer(inputs, *parts)
        last.append((last_fw, last_bw))
  return (inputs, *[tuple(states) for states in zip(*last)])


def sequence_loss_by_example(logits, targets, weights, average_across_timesteps=True,
                             softmax_loss_function=None, name=None):
  """The weighted cross entropy of each sequence, `[batch]`.

  Args:
    logits: a tensor `[batch, classes]` for each time step.
    targets: a tensor `[batch]` for each time step, integers.
    weights: a tensor `[batch]` for each time step; 0 leaves an element out.
    average_across_timesteps: whether to divide the sum over the time steps by its weights.
    softmax_loss_function: takes `labels` and `logits`, in place of the softmax cross entropy.
    name: of the operations.

  Raises:
    ValueError: the lists have different lengths.
  """
  if not len(logits) == len(targets) == len(weights):
    raise ValueError("There are %d logits, %d targets and %d weights: each time step needs all "
                     "three." % (len(logits), len(targets), len(weights)))
  with tf.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
    losses = []
    for logit, target, weight in zip(logits, targets, weights):
      target = tf.reshape(target, [-1])
      losses.append(weight * (
        softmax_loss_function(labels=target, logits=logit) if softmax_loss_function
        else tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=logit)))
    total = tf.add_n(losses)
    return total / (tf.add_n(weights) + _TINY) if average_across_timesteps else total


def mean_sequence_loss(logits, targets, weights, average_across_timesteps=True,
                       average_across_batch=True, softmax_loss_function=None, name=None):
  """The sum of `sequence_loss_by_example` over the batch, or its mean; a scalar."""
  with tf.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
    total = tf.reduce_sum(sequence_loss_by_example(
      logits, targets, weights, average_across_timesteps, softmax_loss_function))
    if average_across_batch:
      total /= tf.cast(tf.shape(targets[0])[0], total.dtype)
    return total


def rnn_decoder(decoder_inputs, initial_state, cell, loop_function=None, scope=None):
  """Runs a cell over the inputs; returns the outputs, a list, and the last state.

  Args:
    decoder_inputs: a tensor `[batch, depth]` for each time step.
    initial_state: the state before the first step.
    cell: a cell of tf.nn.rnn_cell.
    loop_function: takes an output and the number of a step; returns the step's input, which
      replaces the given input.
    scope: the variable scope, in place of "rnn_decoder".
  """
  with tf.variable_scope(scope or "rnn_decoder"):
    state, outputs = initial_state, []
    for step, inputs in enumerate(decoder_inputs):
      if step:
        tf.get_variable_scope().reuse_variables()
      if loop_function is not None and outputs:
        with tf.variable_scope("loop_function", reuse=True):
          inputs = loop_function(outputs[-1], step)
      output, state = cell(inputs, state)
      outputs.append(output)
    return outputs, state


def deprecated_flipped_softmax_cross_entropy_with_logits(logits, labels, dim=-1, name=None):
  """The softmax cross entropy, with the order of arguments from before TensorFlow 1.0."""
  return tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits, dim=dim, name=name)


def deprecated_flipped_sparse_softmax_cross_entropy_with_logits(logits, labels, name=None):
  """The sparse softmax cross entropy, with the order of arguments from before TensorFlow 1.0."""
  return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


def deprecated_flipped_sigmoid_cross_entropy_with_logits(logits, targets, name=None):
  """The sigmoid cross entropy, with the order of arguments from before TensorFlow 1.0."""
  return tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)
