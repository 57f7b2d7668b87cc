"""Batches from files by tf.data: lines, TFRecords, records of a fixed length, and whole files.

Each function returns the tensors of one batch:

1. The files of this worker's share are read, several at a time if records are shuffled. Each record
   gets its position (record_positions.py).
2. Records are shuffled, repeated for the epochs and grouped into batches.
3. One call decodes a batch. For lines this is five to ten times as fast as a call per line. A
   record that cannot be decoded is reported or skipped (batch_decoding.py).
4. Batches are made ahead of the training step. The sessions of tf1ps initialise the iterator and
   can save its position (iterators.py).

A file that is missing or damaged ends the job under either policy for bad records. In the sessions
of tf1ps, the error names the file.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import batch_decoding, iterators, leases
from tf1ps.pipeline import record_positions as positions
from tf1ps.pipeline import shard as shard_lib
from tf1ps.pipeline.graph_input import InputFile, input_of

COMPRESSIONS = (None, "", "GZIP", "ZLIB")
_CYCLE = 8  # files that are read at the same time if records are shuffled
_BLOCK = 16  # consecutive records that are read from each of these files
_CHUNK = 16  # batches of shuffled records that are handled together
_plain = tf.autograph.experimental.do_not_convert


class _FileFormat(NamedTuple):
  """How the records of a file are read."""

  read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]  # (path, compression) -> values
  first_number: int = 0  # the number of a file's first record
  numbered: bool = True  # whether a file holds several records
  has_text: bool = False


def text_line_dataset(shard: shard_lib.Shard, pattern: Union[str, Sequence[str]],
                      decode: Callable[[tf.Tensor], Any],
                      shuffle: Optional[int] = None, header_lines: int = 0,
                      compression: Optional[str] = None, drop_remainder: bool = False,
                      prefetch: int = 2, num_parallel_decodes: int = 1) -> Any:
  """Reads lines of text, such as CSV, without their line ends, in the structure of decode's result.

  In spite of the function's name, the result is not a `tf.data.Dataset`. It is the tensors of the
  next batch, which `input_fn` returns. A byte order mark before a file's first line is dropped, and
  so is every carriage return. Every line feed ends a line, even inside quotes.

  Args:
    shard: this worker's share.
    pattern: the pattern of the files, as for `shard.files`.
    decode: takes a string vector [n] of records; returns tensors, dense or sparse, in any
      structure, whose first dimension is n. For example `tf.io.decode_csv`, `tf.io.parse_example`.
    shuffle: in training, the size of the shuffle buffer in records; None: records keep their order.
    header_lines: the number of lines at the beginning of each file before its records.
    compression: "GZIP", "ZLIB" or "" for none; None: GZIP for names that end in ".gz", else none.
    drop_remainder: whether every batch has exactly shard.batch_size records. Then a remainder at
      the end is dropped, and a skipped record is replaced by another record of its batch.
    prefetch: the number of batches that are made ahead of the training step.
    num_parallel_decodes: the number of batches that are decoded at the same time.

  Returns:
    Tensors in the structure of decode's result, with the batch as their first dimension.

  Raises:
    ShardError: no file matches, or the files cannot be divided.
    ValueError: an argument has a wrong value.
    TypeError: decode returned something else.
  """
  shard_lib.check_at_least("header_lines", header_lines, 0)
  form = _FileFormat(
    lambda path, kind: tf.data.TextLineDataset(path, compression_type=kind).skip(header_lines),
    header_lines, has_text=True)
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def tf_record_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                      shuffle: Optional[int] = None, compression: Optional[str] = None,
                      drop_remainder: bool = False, prefetch: int = 2,
                      num_parallel_decodes: int = 1) -> Any:
  """Reads TFRecord files, for example files of tf.train.Examples.

  Arguments, result and errors are those of `text_line_dataset`.
  """
  form = _FileFormat(lambda path, kind: tf.data.TFRecordDataset(path, compression_type=kind))
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def fixed_length_record_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                                record_bytes: int, header_bytes: int = 0, footer_bytes: int = 0,
                                shuffle: Optional[int] = None, compression: Optional[str] = None,
                                drop_remainder: bool = False, prefetch: int = 2,
                                num_parallel_decodes: int = 1) -> Any:
  """Reads records of a fixed number of bytes.

  The other arguments, the result and the errors are those of `text_line_dataset`.

  Args:
    decode: for example `lambda records: tf.io.decode_raw(records, tf.uint8)`.
    record_bytes: bytes per record.
    header_bytes: bytes at the beginning of each file before its records.
    footer_bytes: bytes at the end of each file after its records.
  """
  shard_lib.check_at_least("record_bytes", record_bytes, 1)
  shard_lib.check_at_least("header_bytes", header_bytes, 0)
  shard_lib.check_at_least("footer_bytes", footer_bytes, 0)
  form = _FileFormat(lambda path, kind: tf.data.FixedLengthRecordDataset(
    path, record_bytes, header_bytes, footer_bytes, compression_type=kind))
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def whole_file_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                       shuffle: Optional[int] = None, drop_remainder: bool = False,
                       prefetch: int = 2, num_parallel_decodes: int = 1) -> Any:
  """Reads files that each are a single record, such as an image.

  Arguments, result and errors are those of `text_line_dataset`.
  """
  form = _FileFormat(lambda path, kind: tf.data.Dataset.from_tensors(path).map(tf.io.read_file),
                 numbered=False)
  return _batch(shard, pattern, decode, form, shuffle, "", drop_remainder, prefetch,
                num_parallel_decodes)


def _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch, parallel):
  shard_lib.check_at_least("prefetch", prefetch, 0)
  shard_lib.check_at_least("num_parallel_decodes", parallel, 1)
  if shuffle is not None:
    shard_lib.check_at_least("shuffle", shuffle, 1)
  if compression not in COMPRESSIONS:
    raise ValueError('compression must be "GZIP", "ZLIB", "" for none, or None to go by the names, '
                     "got %r" % (compression,))
  paths, leased = shard.sources(pattern, shuffle is not None)
  kinds = [_kind(path, compression) for path in paths]
  first = positions.add_files([
    InputFile(path, form.numbered, functools.partial(_read_alone, form, path, kind))
    for path, kind in zip(paths, kinds)])
  if leased is None:
    records = _read_all(shard, paths, kinds, first, form, shuffle)
  else:
    records = _read_leased(leased, paths, kinds, first, form)
    if shuffle is not None:
      records = records.shuffle(shuffle)
  rules = batch_decoding.Rules(
    batch_size=shard.batch_size,
    fixed=drop_remainder,
    skips=input_of().bad_records.skips,
    marked=leased is not None,
    first_number=form.first_number,
    has_text=form.has_text,
    parallel=parallel,
    chunk=_CHUNK if shuffle is not None and shard.mode == "train" and leased is None else 1,
  )
  batches, structure = batch_decoding.decode_batches(records, decode, rules)
  batches = iterators.without_autotuning(batches.prefetch(prefetch) if prefetch else batches)
  flat, marks = batch_decoding.take_batch(
    tf.data.make_initializable_iterator(batches), decode, rules)
  if rules.marked:
    trained, ended, sizes = marks
    shard.range_reports.append(leases.RangeReport(trained - first, ended - first, sizes))
  if drop_remainder:
    for tensor in flat:
      if isinstance(tensor, tf.Tensor):
        tensor.set_shape([shard.batch_size] + tensor.shape.as_list()[1:])
  return tf.nest.map_structure(lambda index: flat[index], structure)


def _read_all(shard, paths, kinds, first, form, shuffle):
  """The records of all files, divided, shuffled and repeated by the shard."""
  files = tf.data.Dataset.from_tensor_slices(
    (paths, kinds, tf.range(first, first + len(paths), dtype=tf.int64)))

  def read(path, kind, source):
    return _read(form, path, kind, source)

  if shuffle is None or shard.mode != "train" or len(paths) == 1:
    records = files.flat_map(_plain(read))
  else:
    records = files.interleave(
      _plain(read), cycle_length=min(_CYCLE, len(paths)), block_length=_BLOCK)
  return shard.dataset(records, shuffle)


def _read_leased(leased, paths, kinds, first, form):
  """The records of the leased files, with a mark after the records of each file."""
  paths, kinds = tf.constant(paths), tf.constant(kinds)

  def read(number):
    index = tf.math.floormod(number, tf.constant(2 ** positions.SOURCE_BITS, tf.int64))
    return _read(
      form, tf.gather(paths, index), tf.gather(kinds, index), number + first, marked=True)

  return leased.flat_map(_plain(read))


def _read(form, path, kind, source, marked=False):
  """The records of a file: (position, value)."""
  values = form.read(path, kind)
  if marked:
    values = values.concatenate(tf.data.Dataset.from_tensors(batch_decoding.MARK))
  first = positions.first_position(source) + form.first_number
  return tf.data.Dataset.zip((tf.data.Dataset.range(first, first + 2 ** 40), values))


def _read_alone(form, path, kind):
  """The values in a file, in the default graph."""
  return form.read(tf.constant(path), tf.constant(kind))


def _kind(path, compression):
  if compression is None:
    return "GZIP" if path.endswith(".gz") else ""
  return compression
