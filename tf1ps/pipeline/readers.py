"""Batches from files by TensorFlow's readers and queues, with threads that read and decode ahead.

Each function returns the tensors of one batch. datasets.py has a similar function by tf.data for
each. All of it is on the worker (on_worker.py):

1. `shard.files` gives this worker's files. A queue lists them once per epoch; in training, with
   `shuffle`, in another order each time.
2. Readers, each with a thread, take one file at a time and read many records at once. Header lines
   and byte order marks are left out. Where records are divided instead of files, every worker reads
   all files in the same order with one reader, and keeps every count-th record.
3. The records go into a queue of pairs (key, record); a key is the record's position as text. With
   `shuffle` this queue returns pairs in random order.
4. Decoding threads take a batch of pairs and decode it by one call. The pairs are marked as a
   record source, so that a decoder's error names the record.
5. Decoded batches wait in a short queue, so that the model need not wait for them. With `pad`
   decoded records wait one by one, in a queue that pads a batch.

In evaluation and prediction there is one reader and one decoder, and nothing is shuffled: all
records come once and in order. After the readers have ended, each queue closes after the queue
before it: its elements still come out, the last batch may be smaller, and then a run raises
OutOfRangeError.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import on_worker, producers
from tf1ps.pipeline import shard as shard_lib
from tf1ps.pipeline.graph_input import add_record_source

COMPRESSIONS = (None, "GZIP", "ZLIB")
_BATCHES = 8  # decoded batches in the queue
_MARK = b"\xef\xbb\xbf"


def text_line_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                     shuffle: Optional[int] = None, header_lines: int = 0,
                     compression: Optional[str] = None, drop_remainder: bool = False, *,
                     num_readers: int = 1, num_decoders: Optional[int] = None,
                     read_up_to: int = 1024, pad: bool = False, seed: Optional[int] = None,
                     worker_device: Optional[str] = None) -> Any:
  """Reads lines of text files.

  Lines end with "\\n" or "\\r\\n", also inside quotes; the last end may be missing. A UTF-8 byte
  order mark at the beginning of a file is left out.

  Args:
    shard: this worker's share.
    pattern: a pattern such as "data/*.csv", a file's name, or a list of patterns and names.
    decode: takes a string vector [n] of records; returns tensors, in any structure, whose first
      dimension is n. For example `lambda lines: tf.io.decode_csv(lines, defaults)`.
    shuffle: the least number of records in the queue from which one is taken at random, in
      training; None: in order.
    header_lines: lines at the beginning of each file that are no records.
    compression: None, "GZIP" or "ZLIB". A compressed file is read as a whole.
    drop_remainder: whether a last batch of fewer records is dropped.
    num_readers: files that are read at the same time. With several, the order of records is not
      fixed.
    num_decoders: batches that are decoded at the same time; None: 2 if records are shuffled, else
      1. With several, the order of batches is not fixed.
    read_up_to: records that a reader reads at once; of a compressed file it reads all at once.
    pad: whether records may differ in shape. Then `decode` gets one record at a time (n = 1), and
      each batch is padded with zeros to its largest record.
    seed: of the shuffling.
    worker_device: as for `on_worker.scope`.

  Returns:
    decode's result for a batch of `shard.batch_size` records. The first dimension is known if all
    batches have this size: with drop_remainder, and if the data has no end.

  Raises:
    ShardError: the files cannot be divided.
    ValueError, TypeError: an argument has a wrong value.
  """
  shard_lib.check_at_least("header_lines", header_lines, 0)
  _check_compression(compression)

  def read(names):
    if compression:
      return _read_compressed_lines(names, header_lines, compression)
    return _read_lines(names, header_lines, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def tf_record_reader(shard: shard_lib.Shard, pattern, decode: Callable[[tf.Tensor], Any],
                     shuffle: Optional[int] = None, compression: Optional[str] = None,
                     drop_remainder: bool = False, *, num_readers: int = 1,
                     num_decoders: Optional[int] = None, read_up_to: int = 1024, pad: bool = False,
                     seed: Optional[int] = None, worker_device: Optional[str] = None) -> Any:
  """Reads TFRecord files. Arguments, result and errors are those of `text_line_reader`.

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
  """Reads records of a fixed number of bytes.

  The further arguments, the result and the errors are those of `text_line_reader`.

  Args:
    decode: for example `lambda records: tf.io.decode_raw(records, tf.uint8)`.
    record_bytes: bytes per record.
    header_bytes: bytes at the beginning of each file that are no record.
    footer_bytes: bytes at the end of each file that are no record.
  """
  shard_lib.check_at_least("record_bytes", record_bytes, 1)
  shard_lib.check_at_least("header_bytes", header_bytes, 0)
  shard_lib.check_at_least("footer_bytes", footer_bytes, 0)
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
  """Reads files each of which is a record, such as an image.

  Arguments, result and errors are those of `text_line_reader`.
  """
  def read(names):
    return tf.WholeFileReader().read_up_to(names, read_up_to)

  return _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
                read_up_to, pad, seed, worker_device)


def _build(shard, pattern, decode, read, shuffle, drop_remainder, num_readers, num_decoders,
           read_up_to, pad, seed, worker_device):
  """Builds the pipeline; `read` takes a queue of names, returns a new reader's (keys, values)."""
  if not callable(decode):
    raise TypeError("decode must be callable, got %r" % (decode,))
  if num_decoders is None:
    num_decoders = 1 if shuffle is None else 2
  for name, value in (("num_readers", num_readers), ("num_decoders", num_decoders),
                      ("read_up_to", read_up_to)):
    shard_lib.check_at_least(name, value, 1)
  if shuffle is not None:
    shard_lib.check_at_least("shuffle", shuffle, 1)
  if shard.is_dynamic:
    raise shard_lib.ShardError("--shard=dynamic works only with tf.data, and this input is a "
                               "reader. Use a dataset of tf1ps.pipeline, such as "
                               "text_line_dataset.")
  files = shard.files(pattern)
  trains = shard.mode == "train"
  by_records = trains and shard.count > 1 and shard.policy == shard_lib.RECORDS
  if by_records or not trains:
    num_readers = 1
  epochs = shard.epochs if trains else 1
  with on_worker.scope(worker_device), tf.name_scope("readers"):
    # The same order on all workers if records are divided: each worker counts them.
    names = producers.string_input_producer(
      files, epochs, shuffle=bool(shuffle) and trains and not by_records, seed=seed,
      capacity=max(32, num_readers))
    pairs = [read(names) for _ in range(min(num_readers, len(files)))]
    if by_records:
      pairs = [_every_count_th(shard, *pairs[0])]
      shard.divided = shard_lib.RECORDS
    plan = _Plan(
      shard.batch_size, shuffle if trains else None, seed, read_up_to,
      num_decoders if trains else 1, drop_remainder, pad, endless=epochs is None)
    return _decoded_batches(pairs, decode, plan)


def _every_count_th(shard, keys, values):
  """Returns this worker's part of all records, by their number over all files and epochs."""
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


# Lines of text.


def _read_lines(names: tf.queue.QueueBase, header_lines: int,
                most: int) -> Tuple[tf.Tensor, tf.Tensor]:
  """Reads at most `most` lines with a new reader; returns (keys, lines), string vectors [n].

  A key is "path:line", where the first line is 1.
  """
  keys, lines = tf.TextLineReader(header_lines).read_up_to(names, most)
  return keys, lines if header_lines else _without_mark(lines)


def _read_compressed_lines(names: tf.queue.QueueBase, header_lines: int,
                           compression: str) -> Tuple[tf.Tensor, tf.Tensor]:
  """Reads a compressed file and splits it into lines; returns the same as `_read_lines`.

  TensorFlow has no reader for compressed text. Its 1.15 ignores all but the first member of a gzip
  file; here this is an error.
  """
  path, packed = tf.WholeFileReader().read(names)
  text = tf.io.decode_compressed(packed, compression)
  if compression == "GZIP" and tf.version.VERSION.startswith("1."):
    with tf.control_dependencies([_assert_one_member(path, packed, text)]):
      text = tf.identity(text)
  text = tf.strings.regex_replace(text, "\r", "")
  lines = tf.string_split([text], "\n", skip_empty=False).values
  # No line follows the last line end, and an empty file has no line.
  count = tf.size(lines) - tf.reduce_sum(tf.cast(tf.equal(lines[-1:], ""), tf.int32))
  numbers = tf.as_string(tf.range(1, count + 1))
  keys = tf.strings.join([path, ":", numbers])
  lines = lines[:count]
  return keys[header_lines:], lines[header_lines:] if header_lines else _without_mark(lines)


def _without_mark(lines):
  # A reader does not read lines of two files at once, so only the first line can have a mark.
  first = lines[:1]

  def changed():
    return tf.concat([tf.strings.substr(first, len(_MARK), 1 << 30), lines[1:]], 0)

  marked = tf.reduce_any(tf.equal(tf.strings.substr(first, 0, len(_MARK)), _MARK))
  return tf.cond(marked, changed, lambda: tf.identity(lines))


def _assert_one_member(path, packed, text):
  # The last 4 bytes are the length of the last member's text (RFC 1952).
  last = tf.io.decode_raw(tf.strings.substr(packed, -4, 4), tf.int32, little_endian=True)
  return tf.Assert(tf.equal(last[0], tf.strings.length(text)), [
    tf.strings.join([path, ": a gzip file of several members, of which TensorFlow 1.15 reads only "
                     "the first. Compress the file again as one member."])])


# From readers to batches.


class _Plan(NamedTuple):
  """How records become batches."""

  batch_size: int
  shuffle: Optional[int]  # the least number of records that are shuffled; None: in order
  seed: Optional[int]  # of the shuffling
  read_up_to: int  # records that a reader reads at once
  num_decoders: int  # threads
  drop_remainder: bool  # whether a last batch of fewer records is dropped
  pad: bool  # whether records are padded to the largest shape in a batch
  endless: bool  # whether the data has no end


def _decoded_batches(pairs: List[Tuple[tf.Tensor, tf.Tensor]],
                     decode: Callable[[tf.Tensor], Any], plan: _Plan) -> Any:
  """Builds the queues and their runners; returns one batch in the structure of decode's result.

  `pairs` has (keys, values) of each reader: string vectors of equal length.
  """
  waiting = _queue_of_pairs(pairs, plan)
  if plan.pad:
    taken = waiting.dequeue_many(1)
  elif plan.drop_remainder or plan.endless:
    taken = waiting.dequeue_many(plan.batch_size)
  else:
    taken = waiting.dequeue_up_to(plan.batch_size)
  keys, values = tf.unstack(taken, axis=1)
  add_record_source(keys, values)
  decoded = decode(values)
  leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(decoded, expand_composites=True)]
  _check(decoded, leaves)
  make = _padded if plan.pad else _whole
  found = make(leaves, plan)
  return tf.nest.pack_sequence_as(decoded, found, expand_composites=True)


def _queue_of_pairs(pairs, plan):
  # So that the reader can go on while the decoders take the records that it read before.
  room = 2 * max(plan.read_up_to, plan.batch_size)
  types, shapes = [tf.string], [[2]]  # one tensor per pair: each tensor costs the queue time
  if plan.shuffle:
    queue = tf.RandomShuffleQueue(plan.shuffle + room, plan.shuffle, types, shapes, seed=plan.seed,
                                  name="records")
  else:
    queue = tf.FIFOQueue(room, types, shapes, name="records")
  _run(queue, [queue.enqueue_many([tf.stack(pair, axis=1)]) for pair in pairs])
  return queue


def _whole(leaves, plan):
  queue = tf.FIFOQueue(_BATCHES, [leaf.dtype for leaf in leaves], name="batches")
  _run(queue, [queue.enqueue(leaves)] * plan.num_decoders)
  found = _listed(queue.dequeue(name="batch"))
  for tensor, leaf in zip(found, leaves):
    tensor.set_shape(leaf.shape)
  return found


def _padded(leaves, plan):
  shapes = [leaf.shape[1:] for leaf in leaves]
  queue = tf.PaddingFIFOQueue((_BATCHES + 1) * plan.batch_size, [leaf.dtype for leaf in leaves],
                              shapes, name="batches")
  _run(queue, [queue.enqueue_many(leaves)] * plan.num_decoders)
  take = queue.dequeue_many if plan.drop_remainder or plan.endless else queue.dequeue_up_to
  return _listed(take(plan.batch_size, name="batch"))


def _run(queue, enqueues):
  tf.train.add_queue_runner(tf.train.QueueRunner(queue, enqueues))


def _listed(taken):
  return taken if isinstance(taken, (list, tuple)) else [taken]


def _check(decoded, leaves):
  if not leaves:
    raise ValueError("decode returned no tensor: %r" % (decoded,))
  for leaf in leaves:
    if leaf.shape.rank == 0:
      raise ValueError(
        "decode takes a vector of records and must return tensors whose first dimension is its "
        "length; it returned a scalar, %r" % leaf)
