"""Lines of text files, by a reader: what is no part of a line is left out.

TensorFlow's reader leaves out "\\r" as well as "\\n". A byte order mark stands before the first
line of a file, and as a reader does not go on into the next file while it reads many lines at once,
it is looked for in the first of them only.

There is no reader for compressed text: such a file is read as a whole, and then split. TensorFlow
1.15 stops at the end of a gzip file's first member, without a word; here it is an error.
"""

from __future__ import annotations

from typing import Tuple

import tensorflow.compat.v1 as tf

_MARK = b"\xef\xbb\xbf"


def read(names: tf.queue.QueueBase, header_lines: int, most: int) -> Tuple[tf.Tensor, tf.Tensor]:
  """Reads lines with a reader of their own.

  Args:
    names: a queue of files' names.
    header_lines: lines at the beginning of each file that are left out.
    most: lines to read at once.

  Returns:
    (keys, lines), string vectors [n]; a key is "path:line", where the first line is 1.
  """
  keys, lines = tf.TextLineReader(header_lines).read_up_to(names, most)
  return keys, lines if header_lines else _without_mark(lines)


def read_compressed(names: tf.queue.QueueBase, header_lines: int,
                    compression: str) -> Tuple[tf.Tensor, tf.Tensor]:
  """Reads a compressed file; the arguments and what is returned are as in `read`.

  Args:
    compression: "GZIP" or "ZLIB".
  """
  path, packed = tf.WholeFileReader().read(names)
  text = tf.io.decode_compressed(packed, compression)
  if compression == "GZIP" and tf.version.VERSION.startswith("1."):
    with tf.control_dependencies([_assert_one_member(path, packed, text)]):
      text = tf.identity(text)
  text = tf.strings.regex_replace(text, "\r", "")
  lines = tf.string_split([text], "\n", skip_empty=False).values
  # After the last end of a line comes no line; an empty file has none at all.
  count = tf.size(lines) - tf.reduce_sum(tf.cast(tf.equal(lines[-1:], ""), tf.int32))
  numbers = tf.as_string(tf.range(1, count + 1))
  keys = tf.strings.join([path, ":", numbers])
  lines = lines[:count]
  return keys[header_lines:], lines[header_lines:] if header_lines else _without_mark(lines)


def _without_mark(lines):
  first = lines[:1]

  def changed():
    return tf.concat([tf.strings.substr(first, len(_MARK), 1 << 30), lines[1:]], 0)

  marked = tf.reduce_any(tf.equal(tf.strings.substr(first, 0, len(_MARK)), _MARK))
  return tf.cond(marked, changed, lambda: tf.identity(lines))


def _assert_one_member(path, packed, text):
  # A member ends with the length of its text in 4 bytes (RFC 1952); here it is that of the last.
  last = tf.io.decode_raw(tf.strings.substr(packed, -4, 4), tf.int32, little_endian=True)
  return tf.Assert(tf.equal(last[0], tf.strings.length(text)), [
    tf.strings.join([path, ": a gzip file of several members, of which TensorFlow 1.15 reads the "
                     "first: compress it anew as one"])])
