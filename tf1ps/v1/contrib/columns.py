"""The feature columns of `tf.contrib.layers`, made from the columns of `tf.feature_column`.

Today the combiner of a sparse column belongs to the column that is made from it, such as an
embedding. So the sparse columns here ignore `combiner`.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_columns = tf.feature_column
bucketized_column = _columns.bucketized_column
one_hot_column = _columns.indicator_column


def real_valued_column(column_name, dimension=1, default_value=None, dtype=tf.float32,
                       normalizer=None):
  """Returns a column of numbers; `dimension` of them per example."""
  if dimension is None:
    raise ValueError("real_valued_column(%r, dimension=None): give the numbers per example" % (
      column_name,))
  return _columns.numeric_column(column_name, (dimension,), default_value, dtype, normalizer)


def sparse_column_with_hash_bucket(column_name, hash_bucket_size, combiner="sum",
                                   dtype=tf.string):
  """Returns a column of categories, by their hash."""
  return _columns.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


def sparse_column_with_integerized_feature(column_name, bucket_size, combiner="sum",
                                           dtype=tf.int64):
  """Returns a column of categories that are numbers from 0 to bucket_size - 1."""
  return _columns.categorical_column_with_identity(column_name, bucket_size)


def sparse_column_with_keys(column_name, keys, default_value=-1, combiner="sum", dtype=tf.string):
  """Returns a column of categories, by their place in a list."""
  return _columns.categorical_column_with_vocabulary_list(
    column_name, keys, dtype=dtype, default_value=default_value)


def sparse_column_with_vocabulary_file(column_name, vocabulary_file, num_oov_buckets=0,
                                       vocab_size=None, default_value=-1, combiner="sum",
                                       dtype=tf.string):
  """Returns a column of categories, by their line in a file."""
  return _columns.categorical_column_with_vocabulary_file(
    column_name, vocabulary_file, vocab_size, num_oov_buckets,
    None if num_oov_buckets else default_value, dtype)


def weighted_sparse_column(sparse_id_column, weight_column_name, dtype=tf.float32, trainable=True):
  """Returns a column of categories with weights."""
  return _columns.weighted_categorical_column(sparse_id_column, weight_column_name, dtype)


def crossed_column(columns, hash_bucket_size, combiner="sum", ckpt_to_load_from=None,
                   tensor_name_in_ckpt=None, hash_key=None):
  """Returns a column of the combinations of categories."""
  # Today's function takes the name of a feature instead of a column of the feature's hashes.
  return _columns.crossed_column(
    [column.key if hasattr(column, "hash_bucket_size") and hasattr(column, "key") else column
     for column in columns], hash_bucket_size, hash_key)


def embedding_column(sparse_id_column, dimension, combiner="mean", initializer=None,
                     ckpt_to_load_from=None, tensor_name_in_ckpt=None, max_norm=None,
                     trainable=True):
  """Returns a column of vectors, a vector for each category."""
  return _columns.embedding_column(
    sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt,
    max_norm, trainable)


def create_feature_spec_for_parsing(feature_columns):
  """Returns the feature spec that `tf.parse_example` needs to read the columns."""
  return _columns.make_parse_example_spec(feature_columns)


def input_from_feature_columns(columns_to_tensors, feature_columns, weight_collections=None,
                               trainable=True, scope=None, cols_to_outs=None):
  """Returns the first layer's input: the values of dense columns, [batch, values]."""
  with tf.variable_scope(scope, "input_from_feature_columns"):
    return _columns.input_layer(columns_to_tensors, feature_columns, weight_collections,
                                trainable, cols_to_output_tensors=cols_to_outs)
