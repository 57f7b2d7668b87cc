"""Tables of vocabularies, each by a single call."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_WHOLE_LINE = tf.lookup.TextFileIndex.WHOLE_LINE
_LINE_NUMBER = tf.lookup.TextFileIndex.LINE_NUMBER


def HashTable(initializer, default_value, shared_name=None, name=None):
  """A table with fixed contents; shared_name is ignored, because TensorFlow 2 chooses it."""
  del shared_name
  return tf.lookup.StaticHashTable(initializer, default_value, name=name)


def MutableHashTable(key_dtype, value_dtype, default_value, shared_name=None,
                     name="MutableHashTable", checkpoint=True):
  """An empty table that the graph fills; shared_name is ignored."""
  del shared_name
  return tf.lookup.experimental.MutableHashTable(
      key_dtype, value_dtype, default_value, name=name, checkpoint=checkpoint)


def MutableDenseHashTable(key_dtype, value_dtype, default_value, empty_key, deleted_key,
                          initial_num_buckets=None, shared_name=None,
                          name="MutableDenseHashTable", checkpoint=True):
  """An empty table with open addressing; shared_name is ignored."""
  del shared_name
  return tf.lookup.experimental.DenseHashTable(
      key_dtype, value_dtype, default_value, empty_key, deleted_key, initial_num_buckets,
      name=name, checkpoint=checkpoint)


def index_table_from_tensor(mapping, num_oov_buckets=0, default_value=-1, hasher_spec=None,
                            dtype=tf.string, name=None):
  """A table from each element of a vector to its position.

  Args:
    mapping: `[keys]`: strings or integers.
    num_oov_buckets: the number of further positions. Keys that are not in `mapping` share these
      positions, by their hash.
    default_value: the position of such a key if num_oov_buckets is 0.
    hasher_spec: must be None, because only a single hash function is supported.
    dtype: the type of the keys that are looked up.
    name: the name of the operations.

  Returns:
    The table.
  """
  keys = tf.convert_to_tensor(mapping)
  if keys.dtype.is_integer:
    keys = tf.cast(keys, tf.int64)
  positions = tf.range(tf.cast(tf.size(keys), tf.int64))
  return _index_table(tf.lookup.KeyValueTensorInitializer(keys, positions), num_oov_buckets,
                      default_value, hasher_spec, dtype, name)


def index_table_from_file(vocabulary_file=None, num_oov_buckets=0, vocab_size=None,
                          default_value=-1, hasher_spec=None, key_dtype=tf.string, name=None,
                          key_column_index=_WHOLE_LINE, value_column_index=_LINE_NUMBER,
                          delimiter="\t"):
  """Returns a table from each line of a file to the number of the line, from 0.

  Args:
    vocabulary_file: the path of the file.
    num_oov_buckets, default_value, hasher_spec, name: as for `index_table_from_tensor`.
    vocab_size: the number of lines to read; None for all.
    key_dtype: the type of the keys that are looked up.
    key_column_index, value_column_index: the columns with the keys and the numbers, if the lines
      have columns.
    delimiter: the text between two columns.
  """
  initializer = tf.lookup.TextFileInitializer(
      vocabulary_file, tf.int64 if key_dtype.is_integer else key_dtype, key_column_index, tf.int64,
      value_column_index, vocab_size=vocab_size, delimiter=delimiter)
  return _index_table(initializer, num_oov_buckets, default_value, hasher_spec, key_dtype, name)


def _index_table(initializer, num_oov_buckets, default_value, hasher_spec, dtype, name):
  if hasher_spec is not None:
    raise ValueError("hasher_spec=%r: leave it out, tf.lookup has one hash function" % hasher_spec)
  if num_oov_buckets:
    return tf.lookup.StaticVocabularyTable(
        initializer, num_oov_buckets, lookup_key_dtype=dtype, name=name)
  return tf.lookup.StaticHashTable(initializer, default_value, name=name)


def index_to_string_table_from_tensor(mapping, default_value="UNK", name=None):
  """A table from each position in a vector to the string at this position."""
  strings = tf.convert_to_tensor(mapping, tf.string)
  positions = tf.range(tf.cast(tf.size(strings), tf.int64))
  return tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(positions, strings), default_value, name=name)


def index_to_string_table_from_file(vocabulary_file, vocab_size=None, default_value="UNK",
                                    name=None, key_column_index=_LINE_NUMBER,
                                    value_column_index=_WHOLE_LINE, delimiter="\t"):
  """A table from the number of a line in a file to the line."""
  initializer = tf.lookup.TextFileInitializer(
      vocabulary_file, tf.int64, key_column_index, tf.string, value_column_index,
      vocab_size=vocab_size, delimiter=delimiter)
  return tf.lookup.StaticHashTable(initializer, default_value, name=name)
