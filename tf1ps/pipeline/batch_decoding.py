"""Batches of records that one call decodes, even if some of the records are bad.

`decode_batches` makes a dataset. Everything in it happens in tf.data, so that the position of its
iterator can be saved:

1. Marks, which say where a leased range ends, are removed from the records.
2. One call decodes a batch. If it fails, each record is decoded alone to find the bad records. Then
   the good records are decoded together; under the policy "fail", only the good records before the
   first bad record. Such a batch is smaller. If the batch size is fixed, the batch has some good
   records twice instead.
3. A `Batch` carries its bad records and marks.
4. Under the policy "skip" a batch without records comes last. It carries the number of records
   read.

`take_batch` takes the batches from an iterator and reports their bad records, in any session:

1. Python is called only for a batch with bad records. It decodes each bad record again to get the
   decoder's message, and adds file and line.
2. Under "skip" the bad record is counted and logged (bad_records.py). A batch that has no good
   record is not delivered; the next batch is taken instead.
3. Under "fail" the good records before a bad record are delivered, and the next run fails with an
   InvalidArgumentError that has Python's message. Sessions of tf1ps raise Python's error itself:
   the decoder's error with the position, or TooManyBadRecordsError (`explain_input_error`).
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.compat import error_line, failed_assertions
from tf1ps.pipeline import bad_records, iterators
from tf1ps.pipeline import record_positions as positions
from tf1ps.pipeline.graph_input import input_of

MARK = b"\0tf1ps: the range ends here\0"  # a mark's value; its number counts the records before it
_BYTE_ORDER_MARK = u"^\ufeff"
_plain = tf.autograph.experimental.do_not_convert  # also for the functions that are called inside
_ERROR_TEXT = re.compile(r"bad record #(\d+): ")  # as `_Reporter._keep` writes it
_KEPT_ERRORS = 100


class Batch(NamedTuple):
  """An element of the dataset."""

  decoded: Tuple[Any, ...]  # the result of decode, flat; tensors [size, ...] or SparseTensors
  size: tf.Tensor  # int64 []: its number of records; a batch of size 0 is not trained on
  bad_positions: tf.Tensor  # int64 [n], of the bad records (record_positions.py); usually n = 0
  bad_values: tf.Tensor  # string [n]
  # Under the policy "skip", int64 []: the number of records that were read so far, good and bad.
  # After the last record: -1 minus that number. Under other policies: empty.
  read: Tuple[tf.Tensor, ...] = ()
  # If ranges are marked: int64 [m], the source of each record of this batch, good or bad; int64
  # [k], the sources of the ranges that ended; int64 [k], the numbers of records in these ranges.
  # Otherwise empty.
  marks: Tuple[tf.Tensor, ...] = ()


class Rules(NamedTuple):
  """How batches are decoded."""

  batch_size: int
  fixed: bool = False  # whether each batch has exactly this size, and a remainder is dropped
  skips: bool = False  # whether bad records are skipped
  marked: bool = False  # whether there are marks among the records
  first_number: int = 0  # the number of a file's first record
  has_text: bool = False  # whether a file may begin with a byte order mark
  parallel: int = 1  # chunks of batches that are decoded at the same time
  # The number of batches that are handled together, which costs less time per batch. Batches with
  # bad records come last among them, so the number is 1 if the order of records matters, or if
  # ranges are marked.
  chunk: int = 1


def decode_batches(records, decode: Callable[[tf.Tensor], Any], rules: Rules):
  """Makes a dataset of decoded batches.

  Args:
    records: a dataset of (position, value), int64 and string scalars.
    decode: takes values, a string vector [n]; returns tensors with n as their first dimension.
    rules: how the batches are decoded.

  Returns:
    (dataset of `Batch`, the structure of decode's result with indices into `Batch.decoded`).
  """
  decoder = _Decoder(decode, rules)
  chunks = records.batch(rules.batch_size * rules.chunk,
                         drop_remainder=rules.fixed and rules.chunk == 1)
  if rules.skips:
    chunks = _counted(chunks)
  chunks = chunks.prefetch(1)  # the next chunk is read while this chunk is decoded
  if rules.parallel > 1:
    batches = chunks.interleave(_plain(decoder.decode), cycle_length=rules.parallel,
                                block_length=rules.chunk, num_parallel_calls=rules.parallel)
  else:
    batches = chunks.flat_map(_plain(decoder.decode))
  # TensorFlow 1.15 crashes in this optimization of decode's operations.
  options = tf.data.Options()
  options.experimental_optimization.noop_elimination = False
  return batches.with_options(options), decoder.structure


def _counted(chunks):
  """Adds to each chunk the number of records read so far, and an empty chunk at the end."""
  none = tf.data.Dataset.from_tensors((tf.zeros([0], tf.int64), tf.zeros([0], tf.string)))

  def count(before, chunk):
    read = before + tf.size(chunk[0], out_type=tf.int64)
    return read, chunk + (tf.where(tf.size(chunk[0]) > 0, read, -1 - read),)

  chunks, zero = chunks.concatenate(none), tf.constant(0, tf.int64)
  if hasattr(chunks, "scan"):
    return chunks.scan(zero, _plain(count))
  return chunks.apply(tf.data.experimental.scan(zero, _plain(count)))


class _Decoder:
  """Makes a dataset of `Batch`es from a chunk of records."""

  def __init__(self, decode, rules):
    self._decode, self._rules = decode, rules
    self._spec = None
    self.structure = None

  def decode(self, position, value, *read):
    rules = self._rules
    if rules.has_text and not rules.first_number:
      first = tf.equal(positions.number_of(position), 0)
      value = tf.cond(tf.reduce_any(first), lambda: tf.where(
        first, tf.strings.regex_replace(value, _BYTE_ORDER_MARK, ""), value), lambda: value)
    marks = ()
    if rules.marked:
      is_mark = tf.equal(value, MARK)
      ends = tf.boolean_mask(position, is_mark)
      position, value = (tf.boolean_mask(each, ~is_mark) for each in (position, value))
      marks = (positions.source_of(position), positions.source_of(ends),
               positions.number_of(ends) - rules.first_number)
    more = (read, marks)
    batches, count = _cut(position, value, rules)
    fast = _without_errors(batches.map(lambda *batch: self._at_once(*batch, more=more)))
    slow = batches.flat_map(lambda *batch: self._one_by_one(*batch, more=more))
    # If the fast dataset has yielded all batches, take() stops before the slow dataset starts.
    if rules.chunk > 1:
      slow = slow.filter(lambda batch: tf.size(batch.bad_positions) > 0)
    return fast.concatenate(slow).take(count)

  def _at_once(self, position, value, more):
    number = tf.size(value, out_type=tf.int64)
    values = value
    if self._rules.fixed and self._rules.marked:
      values = tf.gather(tf.concat([value, [MARK]], 0), _filled(tf.range(number), self._rules))
    return Batch(self._decoded(values), number, tf.zeros([0], tf.int64),
                 tf.zeros([0], tf.string), *more)

  def _one_by_one(self, position, value, more):
    number = tf.size(value, out_type=tf.int64)

    def batch_of(good):
      size, chosen, bad = _good_and_bad(good, number, self._rules)
      # This may fail: records that are good alone may not fit each other.
      decoded = tf.cond(size > 0, lambda: self._decoded(
        tf.gather(value, _filled(chosen, self._rules))), self._nothing)
      read, marks = more
      if marks and not self._rules.skips:  # only of the good records before the bad record
        marks = (marks[0][:size], marks[1][:0], marks[2][:0])
      return Batch(decoded, size, tf.gather(position, bad), tf.gather(value, bad), read, marks)

    return self._good_ones(value).map(batch_of)

  def _good_ones(self, value):
    """A dataset of a single element, [-1, *indices of the records that can be decoded]."""
    count = tf.size(value, out_type=tf.int64)
    each = tf.data.Dataset.from_tensor_slices((tf.range(count), value)).batch(1)
    # The decoded values are part of the element, because unused operations would not run.
    good = _without_errors(each.map(lambda index, record: (index, self._decoded(record)))).map(
      lambda index, _: index)
    return tf.data.Dataset.from_tensors(tf.constant([-1], tf.int64)).concatenate(good).batch(
      count + 1)

  def _decoded(self, values):
    result = self._decode(values)
    flat = tf.nest.flatten(result)
    for leaf in flat:
      if not isinstance(leaf, (tf.Tensor, tf.SparseTensor)) or leaf.shape.ndims == 0:
        raise TypeError(
          "decode takes a vector of records and must return tensors, dense or sparse, whose first "
          "dimension is its length; it returned %r" % (leaf,))
    if self.structure is None:
      self.structure = tf.nest.pack_sequence_as(result, list(range(len(flat))))
      self._spec = [(leaf.dtype, leaf.shape, isinstance(leaf, tf.SparseTensor)) for leaf in flat]
    return tuple(flat)

  def _nothing(self):
    """Returns decode's result for no records."""
    return tuple(_empty(*spec) for spec in self._spec)


def _cut(position, value, rules):
  """Cuts a chunk into batches: (dataset of (position, value), the number of batches)."""
  if rules.chunk == 1:
    return tf.data.Dataset.from_tensors((position, value)), 1
  size = tf.constant(rules.batch_size, tf.int64)
  number = tf.size(value, out_type=tf.int64)
  whole, remainder = number // size, number % size
  batches = tf.data.Dataset.from_tensor_slices(tuple(
    tf.reshape(each[:whole * size], [whole, size]) for each in (position, value)))
  if rules.fixed and not rules.skips:
    return batches, whole
  # The remainder, or the empty chunk at the end.
  has_one = tf.cast((remainder > 0) & (not rules.fixed) | tf.equal(number, 0), tf.int64)
  last = tf.data.Dataset.from_tensors((position[whole * size:], value[whole * size:]))
  return batches.concatenate(last.take(has_one)), whole + has_one


def _good_and_bad(good, number, rules):
  """From [-1, *indices of good records]: (their number, the good records, the bad), to train."""
  good = tf.reshape(good, [-1])[1:]
  is_good = tf.scatter_nd(good[:, None], tf.ones_like(good), number[None]) > 0
  bad = tf.reshape(tf.where(~is_good), [-1])
  if not rules.skips:
    bad = bad[:1]
    good = tf.range(tf.reduce_min(tf.concat([bad, number[None]], 0)))
    if rules.fixed:  # the good records before the bad record are a remainder
      good = good[:tf.where(tf.size(bad) > 0, 0, tf.size(good))]
  return tf.size(good, out_type=tf.int64), good, bad


def _filled(indices, rules):
  """Repeats indices until their number is that of a fixed batch size, if any."""
  if not rules.fixed:
    return indices
  size = tf.maximum(tf.size(indices, out_type=tf.int64), 1)
  order = tf.range(tf.constant(rules.batch_size, tf.int64)) % size
  return tf.gather(tf.concat([indices, tf.zeros([1], tf.int64)], 0), order)


def _without_errors(dataset):
  if hasattr(dataset, "ignore_errors"):
    return dataset.ignore_errors()
  return dataset.apply(tf.data.experimental.ignore_errors())


def _empty(dtype, shape, is_sparse):
  if is_sparse:
    return tf.SparseTensor(tf.zeros([0, shape.ndims], tf.int64), tf.zeros([0], dtype),
                           tf.zeros([shape.ndims], tf.int64))
  if shape.ndims is None:
    return tf.zeros([0], dtype)
  return tf.zeros([0] + [each or 0 for each in shape.as_list()[1:]], dtype)


# Taking batches, and reports of their bad records.


def take_batch(iterator, decode: Callable[[tf.Tensor], Any],
               rules: Rules) -> Tuple[List[Any], Tuple[tf.Tensor, ...]]:
  """Takes the next batch that has records; for `decode` and `rules` see `decode_batches`.

  Returns:
    (the decoded tensors, flat; the marks of this batch and of empty batches before it).
    A run raises the errors in the module's docstring.
  """
  reporter = _Reporter(tf.get_default_graph(), decode)
  late = None if rules.skips else tf.FIFOQueue(1, tf.string, name="bad_record")
  first = _next(iterator, reporter, late)
  if not rules.skips and not rules.marked:
    return list(first.decoded), ()
  # A batch may be empty.
  flat = tf.nest.flatten(first, expand_composites=True)

  def packed(tensors):
    return tf.nest.pack_sequence_as(first, tensors, expand_composites=True)

  def is_empty(*tensors):
    return tf.equal(packed(tensors).size, 0)

  def next_one(*tensors):
    before = packed(tensors)
    with tf.control_dependencies(tensors):  # takes one batch after the other
      batch = _next(iterator, reporter, late)
    batch = batch._replace(
      marks=tuple(tf.concat(both, 0) for both in zip(before.marks, batch.marks)))
    return tf.nest.flatten(batch, expand_composites=True)

  shapes = [tensor.shape for tensor in flat]
  full = tf.cond(is_empty(*flat), lambda: tf.while_loop(
    is_empty, next_one, flat, shape_invariants=shapes, parallel_iterations=1, back_prop=False),
    lambda: [tf.identity(tensor) for tensor in flat])
  for tensor, shape in zip(full, shapes):
    tensor.set_shape(shape)
  batch = packed(full)
  return list(batch.decoded), batch.marks


def _next(iterator, reporter, late):
  """The next batch, after its bad records were reported."""
  # An error that an earlier batch has left comes first, because no further batch may come.
  waiting = [] if late is None else [
    tf.cond(late.size() > 0, lambda: _raise(late.dequeue()), lambda: tf.constant(True))]
  with tf.control_dependencies(waiting):
    batch = iterator.get_next()
  # Python runs only in this process. In in-graph replication the batch may be taken on another
  # worker; an evaluation belongs to no cluster.
  record = latest_record() if "/job:" in batch.size.device else None
  device = "" if record is None else record.cluster.task.name + "/device:CPU:0"

  def report():
    with tf.device(device):
      text = tf.numpy_function(
        reporter.report, [batch.bad_positions, batch.bad_values] + list(batch.read), tf.string,
        name=iterators.REPORT_NAME)
      text.set_shape([])
    if late is None:
      return _raise(text)
    # The good records come first, and the error waits for the next run.
    return tf.cond((batch.size > 0) & tf.not_equal(text, ""), lambda: _after(late.enqueue(text)),
                   lambda: _raise(text))

  has_report = tf.size(batch.bad_positions) > 0
  if batch.read:
    has_report |= batch.read[0] < 0
  with tf.control_dependencies([tf.cond(has_report, report, lambda: tf.constant(True))]):
    return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


def _raise(text):
  return _after(tf.debugging.Assert(tf.equal(text, ""), [text]))


def _after(op):
  with tf.control_dependencies([op]):
    return tf.constant(True)


def explain_input_error(error: BaseException, graph: tf.Graph) -> BaseException:
  """Returns the error of Python code, or of a damaged file, that caused the error of a run.

  For a bad record, this is the error that Python raised. For a damaged file, it is a DataLossError
  with the file's name. Otherwise the function returns `error` itself.
  """
  if isinstance(error, tf.errors.InvalidArgumentError):
    for text in failed_assertions(error):
      number = _ERROR_TEXT.match(text)
      if number:
        return input_of(graph).errors.get(int(number.group(1)), error)
  return positions.explain_damage(error, graph)


class _Reporter:
  """Reports the bad records of a graph; called by its runs."""

  def __init__(self, graph, decode):
    self._graph, self._decode = graph, decode

  def report(self, bad_positions, values, read=0):
    """Returns the text of the error that ends the run; "" if no error ends it."""
    policy = input_of(self._graph).bad_records
    is_last, read = read < 0, int(read if read >= 0 else -1 - read)
    try:
      for position, value in zip(bad_positions, values):
        key = positions.position_text(self._graph, position)
        error = _decoding_error(self._decode, value)
        if not policy.skips:
          raise bad_records.located(error, key)
        policy.skip(key, error.message, read)
      if is_last:
        policy.check_at_end(read)
    except (tf.errors.OpError, bad_records.TooManyBadRecordsError) as error:
      return self._keep(error)
    if is_last:
      raise StopIteration("the data has ended")  # the run raises it as OutOfRangeError
    return b""

  def _keep(self, error) -> bytes:
    """Keeps an error for `explain_input_error`; returns the error's text, with its number."""
    known = input_of(self._graph)
    with known.lock:
      number = 1 + next(reversed(known.errors), 0)
      known.errors[number] = error
      if len(known.errors) > _KEPT_ERRORS:
        known.errors.popitem(last=False)
    text = getattr(error, "message", None) or str(error)
    return ("bad record #%d: %s" % (number, text)).encode("utf-8")


def _decoding_error(decode, value) -> tf.errors.InvalidArgumentError:
  text = "the record cannot be decoded"
  try:
    if tf.__version__.startswith("1."):
      value.decode("utf-8")  # 1.15 crashes when an error's text quotes bytes that are not UTF-8
    with tf.Graph().as_default(), tf.Session() as session:
      session.run(decode(tf.constant([value])))
  except tf.errors.OpError as error:
    text = error_line(error)
  except UnicodeDecodeError as error:
    if error.object != value:  # the object is TensorFlow's text, which quotes the record
      text = error_line(ValueError(error.object.decode("utf-8", "replace")))
  except Exception:  # decode needs more than the record, such as a table of the graph
    pass
  return tf.errors.InvalidArgumentError(None, None, text)
