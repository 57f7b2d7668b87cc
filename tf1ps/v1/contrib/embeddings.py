"""Embeddings of sequences."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def embed_sequence(ids, vocab_size=None, embed_dim=None, unique=False, initializer=None,
                   regularizer=None, trainable=True, scope=None, reuse=None):
  """Looks the rows of ids up in a variable `EmbedSequence/embeddings`.

  Args:
    ids: `[batch, length]`, int32 or int64.
    vocab_size: the number of rows; None if the variable is reused.
    embed_dim: the length of a row; None if the variable is reused.
    unique: whether each row is fetched once, even if its id occurs several times.
    initializer: the initializer of the variable.
    regularizer: the regularizer of the variable.
    trainable: whether optimizers change the variable.
    scope: the scope's name, instead of EmbedSequence.
    reuse: whether the variable exists already.

  Returns:
    `[batch, length, embed_dim]`.
  """
  if not reuse and (vocab_size is None or embed_dim is None):
    raise ValueError("A new variable needs vocab_size and embed_dim, got %r and %r."
                     % (vocab_size, embed_dim))
  with tf.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
    embeddings = tf.get_variable(
        "embeddings", None if reuse and vocab_size is None else [vocab_size, embed_dim],
        initializer=initializer, regularizer=regularizer, trainable=trainable,
        collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.MODEL_VARIABLES])
    ids = tf.convert_to_tensor(ids)
    if not unique:
      return tf.nn.embedding_lookup(embeddings, ids)
    rows, positions = tf.unique(tf.reshape(ids, [-1]))
    rows_of_ids = tf.gather(tf.nn.embedding_lookup(embeddings, rows), positions)
    result = tf.reshape(rows_of_ids, tf.concat([tf.shape(ids), [tf.shape(embeddings)[-1]]], 0))
    result.set_shape(ids.shape.concatenate(embeddings.shape[-1:]))
    return result
