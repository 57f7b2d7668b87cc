"""Files to batches by TensorFlow's readers and queues, with threads that read and decode ahead.

Each function returns the tensors of one batch. It has twins of the same name in datasets.py, which
do it by tf.data. What happens, in this order (all of it on the worker, see on_worker.py):

1. `shard.files` gives this worker's files. They are listed in a queue, once for each epoch; in
   training, with `shuffle`, in another order each time.
2. Readers, each with a thread, take a file at a time and read many records at once; header lines
   and byte order marks are left out. Where records are divided and not files, every worker
   reads all files in the same order with one reader, and keeps every count-th record.
3. Decoding threads make batches of them (see record_queues.py).

In evaluation and prediction there is one reader and one decoder, and nothing is shuffled: all
records come once and in order. At the end of the data comes an OutOfRangeError.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import line_files, on_worker, producers, record_queues
from tf1ps.pipeline import shard as shard_lib

COMPRESSIONS = (None, "GZIP", "ZLIB")


def text_line_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
               shuffle: Optional[int] = None, header_lines: int = 0,
               compression: Optional[str] = None, drop_remainder: bool = False, *,
               num_readers: int = 1, num_decoders: Optional[int] = None, read_up_to: int = 1024,
               pad: bool = False, seed: Optional[int] = None,
               worker_device: Optional[str] = None) -> Any:
  """The lines of text files, in batches.

  Ends of lines may be "\\n" or "\\r\\n"; the last one may be missing; a UTF-8 byte order mark at a
  file's beginning is left out. A line inside of quotes is a line of its own.

  Args:
    shard: this worker's share.
    pattern: a pattern such as "data/*.csv", a file's name, or a list of such.
    decode: takes a string vector [n] of records and returns tensors, in any structure, whose first
      dimension is n, such as `lambda lines: tf.io.decode_csv(lines, defaults)`.
    shuffle: how many records wait at least, so that one comes at random among them, in training;
      None: in order.
    header_lines: lines at the beginning of each file that are no records.
    compression: None, "GZIP" or "ZLIB". A compressed file is read as a whole.
    drop_remainder: whether a last batch of fewer records than the others is left out.
    num_readers: files that are read at the same time. With several, records of different files come
      in no fixed order.
    num_decoders: batches that are decoded at the same time; None: 2 where records are shuffled,
      else 1. With several, batches come in no fixed order.
    read_up_to: records that a reader hands on at a time; a compressed file's all at once.
    pad: whether records may differ in shape: `decode` is called with one record at a time (n = 1),
      and each batch is padded with zeros to its largest.
    seed: of the shuffling.
    worker_device: see on_worker.py.

  Returns:
    What `decode` returned, for a batch of `shard.batch_size` records. The first dimension is known
    if all batches have this size: with drop_remainder, and where the data has no end.

  Raises:
    ShardError: the files cannot be shared.
    ValueError, TypeError: a value that is none of the above.
  """
  _at_least("header_lines", header_lines, 0)
  _check_compression(compression)

  def read(names):
    if compression:
      return line_files.read_compressed(names, header_lines, compression)
    return line_files.read(names, header_lines, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def tf_record_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
               shuffle: Optional[int] = None, compression: Optional[str] = None,
               drop_remainder: bool = False, *, num_readers: int = 1,
               num_decoders: Optional[int] = None, read_up_to: int = 1024, pad: bool = False,
               seed: Optional[int] = None, worker_device: Optional[str] = None) -> Any:
  """The records of TFRecord files, in batches; the arguments are those of `text_lines`.

  `decode` may be `lambda records: tf.io.parse_example(records, features)`.
  """
  _check_compression(compression)
  kinds = {None: tf.io.TFRecordCompressionType.NONE, "GZIP": tf.io.TFRecordCompressionType.GZIP,
           "ZLIB": tf.io.TFRecordCompressionType.ZLIB}

  def read(names):
    reader = tf.TFRecordReader(options=tf.io.TFRecordOptions(kinds[compression]))
    return reader.read_up_to(names, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def fixed_length_record_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                         record_bytes: int, header_bytes: int = 0, footer_bytes: int = 0,
                         shuffle: Optional[int] = None, compression: Optional[str] = None,
                         drop_remainder: bool = False, *, num_readers: int = 1,
                         num_decoders: Optional[int] = None, read_up_to: int = 1024,
                         pad: bool = False, seed: Optional[int] = None,
                         worker_device: Optional[str] = None) -> Any:
  """Records of a fixed number of bytes, in batches.

  `decode` may be `lambda records: tf.io.decode_raw(records, tf.uint8)`.

  Args:
    record_bytes: of a record.
    header_bytes: at the beginning of each file, which are no record.
    footer_bytes: at the end of each file, likewise.
    The others are those of `text_lines`.
  """
  _at_least("record_bytes", record_bytes, 1)
  _at_least("header_bytes", header_bytes, 0)
  _at_least("footer_bytes", footer_bytes, 0)
  _check_compression(compression)

  def read(names):
    reader = tf.FixedLengthRecordReader(record_bytes, header_bytes, footer_bytes,
                                        encoding=compression)
    return reader.read_up_to(names, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def whole_file_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                shuffle: Optional[int] = None, drop_remainder: bool = False, *,
                num_readers: int = 1, num_decoders: Optional[int] = None, read_up_to: int = 1,
                pad: bool = False, seed: Optional[int] = None,
                worker_device: Optional[str] = None) -> Any:
  """Files as records, such as images, in batches; the arguments are those of `text_lines`."""
  def read(names):
    return tf.WholeFileReader().read_up_to(names, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
           read_up_to, pad, seed, worker_device):
  """Builds the pipeline; `read` takes a queue of names and returns a new reader's pairs."""
  if not callable(decode):
    raise TypeError("decode must be callable, got %r" % (decode,))
  if num_decoders is None:
    num_decoders = 1 if shuffle is None else 2
  for name, value in (("num_readers", num_readers), ("num_decoders", num_decoders),
                      ("read_up_to", read_up_to)):
    _at_least(name, value, 1)
  if shuffle is not None:
    _at_least("shuffle", shuffle, 1)
  if shard.is_dynamic:
    raise shard_lib.ShardError("--shard=dynamic hands files out to tf.data alone: use the function "
                               "of the same name in tf1ps.pipeline.datasets")
  files = shard.files(pattern)
  trains = shard.mode == "train"
  by_records = trains and shard.count > 1 and shard.policy == shard_lib.RECORDS
  if by_records or not trains:
    num_readers = 1
  epochs = shard.epochs if trains else 1
  with on_worker.scope(worker_device), tf.name_scope("readers"):
    # In the same order in all workers, where they count the records to divide them.
    names = producers.string_input_producer(
      files, epochs, shuffle=bool(shuffle) and trains and not by_records, seed=seed,
      capacity=max(32, num_readers))
    pairs = [read(names) for _ in range(min(num_readers, len(files)))]
    if by_records:
      pairs = [_every_count_th(shard, *pairs[0])]
      shard.divided = shard_lib.RECORDS
    plan = record_queues.Plan(
      shard.batch_size, shuffle if trains else None, seed, read_up_to,
      num_decoders if trains else 1, drop_remainder, pad, endless=epochs is None)
    return record_queues.batches(pairs, decode, plan)


def _every_count_th(shard, keys, values):
  """This worker's part of all records, by their running number over all files and epochs."""
  read = tf.Variable(0, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES],
                     dtype=tf.int64, name="records_read", use_resource=True)
  count = tf.size(values, out_type=tf.int64)
  numbers = read.assign_add(count) - count + tf.range(count)
  mine = tf.equal(numbers % shard.count, shard.index)
  return tf.boolean_mask(keys, mine), tf.boolean_mask(values, mine)


def _check_compression(compression):
  if compression not in COMPRESSIONS:
    raise ValueError("compression must be one of %s, got %r" % (
      ", ".join(map(repr, COMPRESSIONS)), compression))


def _at_least(name, value, least):
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise ValueError("%s must be an integer of at least %d, got %r" % (name, least, value))
