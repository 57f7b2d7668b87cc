"""The position of a record: its file and its number in the file, looked up only for an error.

A record that travels through a graph carries an integer, its position:

  bits 49 to 62   the epoch, where files are leased; else 0
  bits 31 to 48   the file's index in the graph's table of files (graph_input.py)
  bits 0 to 30    the record's number in the file, from 0

The bits above the number are the record's source: epoch * 2^32 + index, as in a leased range.

The error of a damaged file gets the file's name too. TensorFlow's error says at which byte the
damage is, but not in which file. So after such an error the graph's files are read again, up to the
damaged file.
"""

from __future__ import annotations

import time
from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, error_line
from tf1ps.pipeline.graph_input import InputFile, input_of

MAX_FILES = 2 ** 18
MAX_EPOCHS = 2 ** 14  # then the leases count epochs from 0 again
_NUMBER_BITS = 31
_EPOCH_BITS = 49
SOURCE_BITS = 32  # the bits of the index in a source


def add_files(files: List[InputFile]) -> int:
  """Adds files to the table of the default graph.

  Returns:
    The index of the first file; the others follow.

  Raises:
    ValueError: there are too many files.
  """
  table = input_of().files
  if len(table) + len(files) > MAX_FILES:
    raise ValueError("%d files are too many; at most %d can be read. Put the records into fewer "
                     "files." % (len(table) + len(files), MAX_FILES))
  table += files
  return len(table) - len(files)


def first_position(source):
  """Returns the position of number 0 in a source, epoch * 2^32 + index; both int64 tensors.

  The epoch is below MAX_EPOCHS.
  """
  index = tf.bitwise.bitwise_and(source, _long(2 ** SOURCE_BITS - 1))
  epoch = tf.bitwise.right_shift(source, _long(SOURCE_BITS))
  return (tf.bitwise.left_shift(epoch, _long(_EPOCH_BITS))
          + tf.bitwise.left_shift(index, _long(_NUMBER_BITS)))


def source_of(position):
  """Returns the sources of positions; both int64 tensors."""
  epoch = tf.bitwise.right_shift(position, _long(_EPOCH_BITS))
  index = tf.bitwise.bitwise_and(
    tf.bitwise.right_shift(position, _long(_NUMBER_BITS)), _long(MAX_FILES - 1))
  return tf.bitwise.left_shift(epoch, _long(SOURCE_BITS)) + index


def number_of(position):
  """Returns the numbers of records in their files, from their positions; both int64 tensors."""
  return tf.bitwise.bitwise_and(position, _long(2 ** _NUMBER_BITS - 1))


def position_text(graph: tf.Graph, position: int) -> str:
  """Returns a record's place as text, such as "data/a.csv:17".

  Lines count from 1 and include the header. A file that is the record has no line.
  """
  file = input_of(graph).files[(int(position) >> _NUMBER_BITS) % MAX_FILES]
  number = int(position) % 2 ** _NUMBER_BITS
  return "%s:%d" % (file.path, number + 1) if file.numbered else file.path


def explain_damage(error: BaseException, graph: tf.Graph) -> BaseException:
  """Adds the file's name to the error of a run of this graph that read a damaged file.

  Returns a `DataLossError` whose text begins with the file's name; or the error itself, if it is of
  another kind, or if the damage is not found within `Timing.file_check_limit`.
  """
  if not isinstance(error, tf.errors.DataLossError):
    return error
  until = time.monotonic() + TIMING.file_check_limit
  for file in input_of(graph).files:
    text = _damage(file, until)
    if text is not None:
      return tf.errors.DataLossError(None, None, "%s: %s" % (file.path, text))
  return error


def _damage(file, until):
  with tf.Graph().as_default(), tf.Session() as session:
    iterator = tf.data.make_initializable_iterator(file.values().batch(1000))
    some = tf.size(iterator.get_next())
    session.run(iterator.initializer)
    while time.monotonic() < until:
      try:
        session.run(some)
      except tf.errors.DataLossError as error:
        return error_line(error)
      except tf.errors.OpError:
        return None
  return None


def _long(value):
  return tf.constant(value, tf.int64)
