"""Readers of files on tf.data: of lines, TFRecords, records of a fixed length, and whole files.

Each returns the tensors of one batch. What happens to a record on its way there:

1. The files of this worker's share are read, several at a time where records are shuffled; each
   record gets its source and its number there (places.py).
2. Records are shuffled, repeated for the epochs and put into batches.
3. A batch is decoded by one call: for lines that is five to ten times as fast as one by one.
   Records that cannot be decoded are told or skipped (batch_decoding.py, bad_batches.py).
4. Batches are made ahead of the training step. The iterator is started by our sessions, and where
   it stands can be saved (iterators.py).

A file that cannot be read, or is damaged, ends the job under either policy for bad records; the
error names it, that of a damaged one in our sessions (damaged_files.py).
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import (
  autotuning,
  bad_batches,
  bad_records,
  batch_decoding,
  damaged_files,
  leases,
  places,
)
from tf1ps.pipeline import shard as shard_lib

COMPRESSIONS = (None, "", "GZIP", "ZLIB")
_CYCLE = 8  # files that are read at a time where records are shuffled
_BLOCK = 16  # records in a row of each
_CHUNK = 16  # batches of shuffled records that are looked at together
_plain = tf.autograph.experimental.do_not_convert


class _Format(NamedTuple):
  """How the records of one file are read."""

  read: Callable[[tf.Tensor, tf.Tensor], tf.data.Dataset]  # (path, compression) -> values
  first_number: int = 0  # of a file's first record
  numbered: bool = True  # whether a file holds several records
  has_text: bool = False


def text_line_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
               shuffle: Optional[int] = None, header_lines: int = 0,
               compression: Optional[str] = None, drop_remainder: bool = False, prefetch: int = 2,
               num_parallel_decodes: int = 1) -> Any:
  """Reads lines of text, such as CSV, without their ends.

  A byte order mark before a file's first line is dropped, and so is every carriage return. A line
  ends where the file has an end of line, also inside of quotes.

  Args:
    shard: this worker's share.
    pattern: of the files, as for `shard.files`.
    decode: takes a string vector [n] of records; returns tensors, dense or sparse, in any
      structure, with n as first dimension. `tf.io.decode_csv` and `tf.io.parse_example` are such.
    shuffle: size in records of the buffer that shuffles, in training; None: in order.
    header_lines: lines at the beginning of each file that are no records.
    compression: "GZIP", "ZLIB" or "" for none; None: by each file's name, GZIP for ".gz".
    drop_remainder: whether every batch has just shard.batch_size records: what is left at the end
      is dropped, and the place of a record that was skipped is taken by another one of its batch.
    prefetch: batches that are made ahead of the training step.
    num_parallel_decodes: batches that are decoded at the same time.

  Returns:
    The tensors of one batch, in the structure that decode returns.

  Raises:
    ShardError: no such file, or they cannot be divided.
    ValueError: a wrong argument.
    TypeError: decode returned something else.
  """
  _at_least("header_lines", header_lines, 0)
  form = _Format(
    lambda path, kind: tf.data.TextLineDataset(path, compression_type=kind).skip(header_lines),
    header_lines, has_text=True)
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def tf_record_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
               shuffle: Optional[int] = None, compression: Optional[str] = None,
               drop_remainder: bool = False, prefetch: int = 2,
               num_parallel_decodes: int = 1) -> Any:
  """Reads TFRecord files, such as of tf.train.Examples.

  Args and the rest as for `text_lines`.
  """
  form = _Format(lambda path, kind: tf.data.TFRecordDataset(path, compression_type=kind))
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def fixed_length_record_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                         record_bytes: int, header_bytes: int = 0, footer_bytes: int = 0,
                         shuffle: Optional[int] = None, compression: Optional[str] = None,
                         drop_remainder: bool = False, prefetch: int = 2,
                         num_parallel_decodes: int = 1) -> Any:
  """Reads records that have so many bytes each.

  Args:
    shard, pattern, decode: as for `text_lines`; `tf.io.decode_raw` is such a decode.
    record_bytes: of each record. A file whose records do not come out even is an error.
    header_bytes: at the beginning of each file that are no record.
    footer_bytes: at its end.
    shuffle, compression, drop_remainder, prefetch, num_parallel_decodes: as for `text_lines`.

  Returns and raises what `text_lines` does.
  """
  _at_least("record_bytes", record_bytes, 1)
  _at_least("header_bytes", header_bytes, 0)
  _at_least("footer_bytes", footer_bytes, 0)
  form = _Format(lambda path, kind: tf.data.FixedLengthRecordDataset(
    path, record_bytes, header_bytes, footer_bytes, compression_type=kind))
  return _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch,
                num_parallel_decodes)


def whole_file_dataset(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                shuffle: Optional[int] = None, drop_remainder: bool = False, prefetch: int = 2,
                num_parallel_decodes: int = 1) -> Any:
  """Reads files each of which is a record, such as images; their contents as they are.

  Args and the rest as for `text_lines`.
  """
  form = _Format(lambda path, kind: tf.data.Dataset.from_tensors(path).map(tf.io.read_file),
                 numbered=False)
  return _batch(shard, pattern, decode, form, shuffle, "", drop_remainder, prefetch,
                num_parallel_decodes)


def _batch(shard, pattern, decode, form, shuffle, compression, drop_remainder, prefetch, parallel):
  _at_least("prefetch", prefetch, 0)
  _at_least("num_parallel_decodes", parallel, 1)
  if shuffle is not None:
    _at_least("shuffle", shuffle, 1)
  if compression not in COMPRESSIONS:
    raise ValueError('compression must be "GZIP", "ZLIB", "" for none, or None to go by the names, '
                     "got %r" % (compression,))
  sources = shard.sources(pattern, shuffle is not None)
  first = places.add(sources.paths, form.numbered)
  kinds = [_kind(path, compression) for path in sources.paths]
  damaged_files.add(sources.paths, lambda index: form.read(
    tf.constant(sources.paths[index]), tf.constant(kinds[index])))
  if sources.leased is None:
    records = _read_all(shard, sources.paths, kinds, first, form, shuffle)
  else:
    records = _read_leased(sources, kinds, first, form)
    if shuffle is not None:
      records = records.shuffle(shuffle)
  rules = batch_decoding.Rules(
    batch_size=shard.batch_size,
    fixed=drop_remainder,
    skips=bad_records.bad_records_of_graph().skips,
    marked=sources.leased is not None,
    first_number=form.first_number,
    has_text=form.has_text,
    parallel=parallel,
    chunk=_CHUNK if shuffle is not None and shard.mode == "train" and not sources.leased else 1,
  )
  batches, structure = batch_decoding.decode_batches(records, decode, rules)
  batches = autotuning.without(batches.prefetch(prefetch) if prefetch else batches)
  flat, marks = bad_batches.draw_batch(tf.data.make_initializable_iterator(batches), decode, rules)
  if rules.marked:
    trained, source, count = marks
    shard.range_reports.append(leases.RangeReport(trained - first, source - first, count))
  if drop_remainder:
    for tensor in flat:
      if isinstance(tensor, tf.Tensor):
        tensor.set_shape([shard.batch_size] + tensor.shape.as_list()[1:])
  return tf.nest.map_structure(lambda place: flat[place], structure)


def _read_all(shard, paths, kinds, first, form, shuffle):
  """The records of all files, divided, shuffled and repeated as the share has it."""
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


def _read_leased(sources, kinds, first, form):
  """The records of the files that are claimed, with a mark behind those of each."""
  paths, kinds = tf.constant(sources.paths), tf.constant(kinds)

  def read(claim):
    index = tf.math.floormod(claim, tf.constant(2 ** places.CLAIM_BITS, tf.int64))
    return _read(form, tf.gather(paths, index), tf.gather(kinds, index), claim + first, marked=True)

  return autotuning.without(sources.leased).flat_map(_plain(read))


def _read(form, path, kind, source, marked=False):
  """The records of one file: (place, value)."""
  values = form.read(path, kind)
  if marked:
    values = values.concatenate(tf.data.Dataset.from_tensors(batch_decoding.MARK))
  first = places.base(source) + form.first_number
  return tf.data.Dataset.zip((tf.data.Dataset.range(first, first + 2 ** 40), values))


def _kind(path, compression):
  if compression is None:
    return "GZIP" if path.endswith(".gz") else ""
  return compression


def _at_least(name, value, least):
  if not isinstance(value, int) or value < least:
    raise ValueError("%s must be an integer of %d or more, got %r" % (name, least, value))
