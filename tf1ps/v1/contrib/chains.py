"""Conditional random fields over sequences: the likelihood of tags, and the best tags.

Lafferty, McCallum and Pereira, 2001: the score of a sequence of tags is the sum of a score for each
element's tag and of a score for each pair of neighbours.
"""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf


def crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params):
  """Returns the score of each sequence of tags, `[batch]`.

  Args:
    inputs: `[batch, length, tags]`: the score of each tag for each element.
    tag_indices: `[batch, length]`, integers.
    sequence_lengths: `[batch]`.
    transition_params: `[tags, tags]`: the score of each tag after each other tag.
  """
  inside = _mask(inputs, sequence_lengths)
  tags = tf.cast(tag_indices, tf.int32)
  single = tf.reduce_sum(inputs * tf.one_hot(tags, tf.shape(inputs)[2], dtype=inputs.dtype), 2)
  pairs = tf.gather_nd(transition_params, tf.stack([tags[:, :-1], tags[:, 1:]], 2))
  return tf.reduce_sum(single * inside, 1) + tf.reduce_sum(pairs * inside[:, 1:], 1)


def crf_log_norm(inputs, sequence_lengths, transition_params):
  """Returns the logarithm of the sum over all sequences of tags, `[batch]`; see the score."""
  def step(total, element):
    scores, is_inside = element
    following = tf.reduce_logsumexp(total[:, :, tf.newaxis] + transition_params, 1) + scores
    return tf.where(is_inside, following, total)

  last = tf.foldl(step, _following(inputs, sequence_lengths), initializer=inputs[:, 0])
  total = tf.reduce_logsumexp(last, 1)
  return tf.where(tf.less_equal(sequence_lengths, 0), tf.zeros_like(total), total)


def crf_log_likelihood(inputs, tag_indices, sequence_lengths, transition_params=None):
  """Returns the log likelihood of the tags, `[batch]`, and the transition parameters.

  Args:
    inputs: `[batch, length, tags]`: the score of each tag for each element.
    tag_indices: `[batch, length]`, integers.
    sequence_lengths: `[batch]`.
    transition_params: `[tags, tags]`; None for a variable "transitions".
  """
  if transition_params is None:
    tags = inputs.shape.dims[2].value
    transition_params = tf.get_variable("transitions", [tags, tags])
  score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
  return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(potentials, transition_params, sequence_length):
  """Returns the best tags, `[batch, length]`, 0 after the end, and their score, `[batch]`.

  Args:
    potentials: `[batch, length, tags]`: the score of each tag for each element.
    transition_params: `[tags, tags]`: the score of each tag after each other tag.
    sequence_length: `[batch]`.
  """
  size, tags = tf.shape(potentials)[0], tf.shape(potentials)[2]
  stay = tf.tile(tf.range(tags)[tf.newaxis], [size, 1])

  def forwards(before, element):
    scores, is_inside = element
    total = before[0][:, :, tf.newaxis] + transition_params
    return (tf.where(is_inside, tf.reduce_max(total, 1) + scores, before[0]),
            tf.where(is_inside, tf.argmax(total, 1, output_type=tf.int32), stay))

  def backwards(tag, previous):
    return tf.gather_nd(previous, tf.stack([tf.range(size), tag], 1))

  first = potentials[:, 0]
  scores, previous = tf.scan(
    forwards, _following(potentials, sequence_length), initializer=(first, stay))
  last_scores = tf.concat([first[tf.newaxis], scores], 0)[-1]
  last = tf.argmax(last_scores, 1, output_type=tf.int32)
  earlier = tf.scan(backwards, previous, initializer=last, reverse=True)
  best = tf.transpose(tf.concat([earlier, last[tf.newaxis]], 0))
  best *= tf.cast(_mask(potentials, sequence_length), tf.int32)
  return best, tf.reduce_max(last_scores, 1)


def viterbi_decode(score, transition_params):
  """Returns the best tags of a sequence, a list, and their score, from arrays.

  Args:
    score: `[length, tags]`.
    transition_params: `[tags, tags]`.
  """
  total, previous = np.array(score[0]), []
  for scores in score[1:]:
    pairs = total[:, np.newaxis] + transition_params
    previous.append(pairs.argmax(0))
    total = pairs.max(0) + scores
  tags = [int(total.argmax())]
  for best in reversed(previous):
    tags.append(int(best[tags[-1]]))
  return tags[::-1], total.max()


def _mask(inputs, lengths):
  return tf.sequence_mask(lengths, tf.shape(inputs)[1], inputs.dtype)


def _following(inputs, lengths):
  """The elements after the first, and whether they are inside; the first dimension is time."""
  inside = tf.sequence_mask(lengths, tf.shape(inputs)[1])
  wide = tf.tile(inside[:, :, tf.newaxis], [1, 1, tf.shape(inputs)[2]])
  return tf.transpose(inputs, [1, 0, 2])[1:], tf.transpose(wide, [1, 0, 2])[1:]
