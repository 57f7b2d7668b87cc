"""Batches of records decoded at once, with the bad ones found one by one where a batch has some.

What happens to a batch of records, all of it inside of the dataset, so that the iterator's position
can be saved:

1. Marks, which tell that a range of the data is over, are taken out.
2. The batch is decoded, by one call. Where that fails each record is tried alone, and the good ones
   are decoded once more together; under the policy "fail" those before the first bad one. Such a
   batch comes smaller, or, where its size is fixed, with some of its good records twice.
3. What is to be told of a batch, its bad records and marks, goes with it.

Under the policy "skip" a batch of no records comes last, to tell how many were read.
"""

from __future__ import annotations

from typing import Any, Callable, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import places

MARK = b"\0tf1ps: the range ends here\0"  # a record's value; its number counts those before it
_BYTE_ORDER_MARK = u"^\ufeff"
_plain = tf.autograph.experimental.do_not_convert  # what is called inside is not converted either


class Batch(NamedTuple):
  """An element of the dataset; vectors of int64 but for values."""

  decoded: Tuple[Any, ...]  # what decode returned, flat; tensors [size, ...] or SparseTensors
  size: tf.Tensor  # int64 []: the records in it; 0: it is not to be trained on
  bad_places: tf.Tensor  # of its bad records, see places.py; empty in most batches
  bad_values: tf.Tensor  # string
  # Under the policy "skip": how many records were read so far, good and bad, -1 - that many at the
  # end of the data; else empty.
  read: Tuple[tf.Tensor, ...] = ()
  # Where ranges are marked: the source of each record that this batch disposes of; of the ranges
  # that have ended, source and count of records.
  marks: Tuple[tf.Tensor, ...] = ()


class Rules(NamedTuple):
  """How batches are decoded."""

  batch_size: int
  fixed: bool = False  # whether each batch has just this size, without a remainder
  skips: bool = False  # whether bad records are skipped
  marked: bool = False  # whether there are marks among the records
  first_number: int = 0  # of a file's first record
  has_text: bool = False  # whether a file may begin with a byte order mark
  parallel: int = 1  # chunks of batches that are decoded at the same time
  # Batches that are looked at together, which costs less; where some of them have bad records,
  # these come last. 1 where the order of the records matters, or they are marked.
  chunk: int = 1


def decode_batches(records, decode: Callable[[tf.Tensor], Any], rules: Rules):
  """Makes a dataset of decoded batches.

  Args:
    records: a dataset of (place, value), int64 and string scalars.
    decode: takes values, a string vector [n]; returns tensors with n as their first dimension.
    rules: how.

  Returns:
    (dataset of `Batch`, the structure of what decode returned, with the places in `decoded`).
  """
  decoder = _Decoder(decode, rules)
  chunks = records.batch(rules.batch_size * rules.chunk,
                         drop_remainder=rules.fixed and rules.chunk == 1)
  if rules.skips:
    chunks = _counted(chunks)
  chunks = chunks.prefetch(1)  # the next one is read while this one is decoded
  if rules.parallel > 1:
    batches = chunks.interleave(_plain(decoder.decode), cycle_length=rules.parallel,
                                block_length=rules.chunk, num_parallel_calls=rules.parallel)
  else:
    batches = chunks.flat_map(_plain(decoder.decode))
  # TensorFlow 1.15 crashes where it looks for what has no effect in what `decode` makes.
  options = tf.data.Options()
  options.experimental_optimization.noop_elimination = False
  return batches.with_options(options), decoder.structure


def _counted(chunks):
  """The chunks and one of no records, each with the records that were read by then."""
  none = tf.data.Dataset.from_tensors((tf.zeros([0], tf.int64), tf.zeros([0], tf.string)))

  def count(before, chunk):
    read = before + tf.size(chunk[0], out_type=tf.int64)
    return read, chunk + (tf.where(tf.size(chunk[0]) > 0, read, -1 - read),)

  chunks, zero = chunks.concatenate(none), tf.constant(0, tf.int64)
  if hasattr(chunks, "scan"):
    return chunks.scan(zero, _plain(count))
  return chunks.apply(tf.data.experimental.scan(zero, _plain(count)))


class _Decoder:
  """Makes the dataset of a chunk's batches, again for each chunk."""

  def __init__(self, decode, rules):
    self._decode = decode
    self._rules = rules
    self._spec = None
    self.structure = None

  def decode(self, place, value, *read):
    """A dataset of `Batch`es."""
    rules = self._rules
    if rules.has_text and not rules.first_number:
      first = tf.equal(places.number_of(place), 0)
      value = tf.cond(tf.reduce_any(first), lambda: tf.where(
        first, tf.strings.regex_replace(value, _BYTE_ORDER_MARK, ""), value), lambda: value)
    marks = ()
    if rules.marked:
      is_mark = tf.equal(value, MARK)
      ends = tf.boolean_mask(place, is_mark)
      place, value = (tf.boolean_mask(each, ~is_mark) for each in (place, value))
      marks = (places.source_of(place), places.source_of(ends),
               places.number_of(ends) - rules.first_number)
    more = (read, marks)
    batches, count = _cut(place, value, rules)
    fast = _without_errors(batches.map(lambda *batch: self._at_once(*batch, more=more)))
    slow = batches.flat_map(lambda *batch: self._one_by_one(*batch, more=more))
    # What the fast way yields the slow one leaves out, and it begins only where something is left.
    if rules.chunk > 1:
      slow = slow.filter(lambda batch: tf.size(batch.bad_places) > 0)
    return fast.concatenate(slow).take(count)

  def _at_once(self, place, value, more):
    number = tf.size(value, out_type=tf.int64)
    values = value
    if self._rules.fixed and self._rules.marked:
      values = tf.gather(tf.concat([value, [MARK]], 0), _filled(tf.range(number), self._rules))
    return Batch(self._decoded(values), number, tf.zeros([0], tf.int64),
                 tf.zeros([0], tf.string), *more)

  def _one_by_one(self, place, value, more):
    number = tf.size(value, out_type=tf.int64)

    def join(good):
      size, chosen, bad = _good_and_bad(good, number, self._rules)
      # Together, and not without errors: records may be good alone and not fit each other.
      decoded = tf.cond(size > 0, lambda: self._decoded(
        tf.gather(value, _filled(chosen, self._rules))), self._nothing)
      read, marks = more
      if marks and not self._rules.skips:  # of the good ones before the bad one alone
        marks = (marks[0][:size], marks[1][:0], marks[2][:0])
      return Batch(decoded, size, tf.gather(place, bad), tf.gather(value, bad), read, marks)

    return self._good_ones(value).map(join)

  def _good_ones(self, value):
    """A dataset of one element, the positions of those that can be decoded, after a first -1."""
    count = tf.size(value, out_type=tf.int64)
    each = tf.data.Dataset.from_tensor_slices((tf.range(count), value)).batch(1)
    # What was decoded comes out as well, as nobody decodes what is not asked for.
    good = _without_errors(each.map(lambda position, one: (position, self._decoded(one)))).map(
      lambda position, _: position)
    return tf.data.Dataset.from_tensors(tf.constant([-1], tf.int64)).concatenate(good).batch(
      count + 1)

  def _decoded(self, values):
    result = self._decode(values)
    flat = tf.nest.flatten(result)
    for leaf in flat:
      if not isinstance(leaf, (tf.Tensor, tf.SparseTensor)) or leaf.shape.ndims == 0:
        raise TypeError(
          "decode takes a vector of records and must return tensors, dense or sparse, with their "
          "number as first dimension; among what it returned is %r" % (leaf,))
    if self.structure is None:
      self.structure = tf.nest.pack_sequence_as(result, list(range(len(flat))))
      self._spec = [(leaf.dtype, leaf.shape, isinstance(leaf, tf.SparseTensor)) for leaf in flat]
    return tuple(flat)

  def _nothing(self):
    """What decode returns, of no records."""
    return tuple(_empty(*spec) for spec in self._spec)


def _cut(place, value, rules):
  """Cuts a chunk into batches: (dataset of (place, value), how many)."""
  if rules.chunk == 1:
    return tf.data.Dataset.from_tensors((place, value)), 1
  size = tf.constant(rules.batch_size, tf.int64)
  number = tf.size(value, out_type=tf.int64)
  whole, rest = number // size, number % size
  batches = tf.data.Dataset.from_tensor_slices(tuple(
    tf.reshape(each[:whole * size], [whole, size]) for each in (place, value)))
  if rules.fixed and not rules.skips:
    return batches, whole
  # What is left; or the batch of nothing that is the last one.
  has_rest = tf.cast((rest > 0) & (not rules.fixed) | tf.equal(number, 0), tf.int64)
  left = tf.data.Dataset.from_tensors((place[whole * size:], value[whole * size:]))
  return batches.concatenate(left.take(has_rest)), whole + has_rest


def _good_and_bad(good, number, rules):
  """From the positions of the good ones: (how many are trained on, which, which are bad)."""
  good = tf.reshape(good, [-1])[1:]
  is_good = tf.scatter_nd(good[:, None], tf.ones_like(good), number[None]) > 0
  bad = tf.reshape(tf.where(~is_good), [-1])
  if not rules.skips:
    bad = bad[:1]
    good = tf.range(tf.reduce_min(tf.concat([bad, number[None]], 0)))
    if rules.fixed:  # those before the bad one are a remainder
      good = good[:tf.where(tf.size(bad) > 0, 0, tf.size(good))]
  return tf.size(good, out_type=tf.int64), good, bad


def _filled(positions, rules):
  """The positions, and some of them again until there are as many as a fixed size asks for."""
  if not rules.fixed:
    return positions
  size = tf.maximum(tf.size(positions, out_type=tf.int64), 1)
  order = tf.range(tf.constant(rules.batch_size, tf.int64)) % size
  return tf.gather(tf.concat([positions, tf.zeros([1], tf.int64)], 0), order)


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
