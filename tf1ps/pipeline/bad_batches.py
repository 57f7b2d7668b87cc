"""Drawing decoded batches, and telling of the bad records in them.

A dataset's batches say which of their records were bad (batch_decoding.py). In the run that draws
one, in whatever kind of session:

1. Only where there are some Python is called. It tells file, line and the decoder's own message,
   for which it decodes the one record again.
2. A skipped record is counted and logged by the graph's policy (bad_records.py). A batch of which
   nothing is left is not delivered: the next one is drawn.
3. Under the policy "fail" the good records before the bad one are delivered; the run after that
   fails. Its error is an InvalidArgumentError whose text is that message; from a session of ours
   the decoder's own error, located, or TooManyBadRecordsError (`explain`).
"""

from __future__ import annotations

import collections
import itertools
import re
import threading
from typing import Any, Callable, List, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.compat import error_line
from tf1ps.pipeline import bad_records, batch_decoding, damaged_files, places, python_calls

_TEXT = "bad record #"
_REMEMBERED = 100
_numbers = itertools.count(1)
_raised = collections.OrderedDict()  # number: the error that a text with it stands for
_lock = threading.Lock()


def draw_batch(iterator, decode: Callable[[tf.Tensor], Any],
         rules: batch_decoding.Rules) -> Tuple[List[Any], Tuple[tf.Tensor, ...]]:
  """Draws the next batch that has records.

  Args:
    iterator: of a dataset of `batch_decoding.Batch`.
    decode: what decoded its records.
    rules: as given to `batch_decoding.decode_batches`.

  Returns:
    (what was decoded, flat; the marks of this batch and of those without records before it).
    Drawing it raises what the module's docstring says.
  """
  reporter = _Reporter(tf.get_default_graph(), decode)
  late = None if rules.skips else tf.FIFOQueue(1, tf.string, name="bad_record")
  first = _next(iterator, reporter, late)
  if not rules.skips and not rules.marked:
    return list(first.decoded), ()
  # There may be nothing left of a batch.
  flat = tf.nest.flatten(first, expand_composites=True)

  def packed(tensors):
    return tf.nest.pack_sequence_as(first, tensors, expand_composites=True)

  def is_empty(*tensors):
    return tf.equal(packed(tensors).size, 0)

  def next_one(*tensors):
    before = packed(tensors)
    with tf.control_dependencies(tensors):  # one after the other
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
  """The next batch, once what it tells has been heard."""
  # First what is late: after the last batch there is no other one.
  waiting = [] if late is None else [
    tf.cond(late.size() > 0, lambda: _raise(late.dequeue()), lambda: tf.constant(True))]
  with tf.control_dependencies(waiting):
    batch = iterator.get_next()
  # Only this process can be called. In-graph the batch may be drawn on another worker, while an
  # evaluation is in no cluster.
  record = latest_record() if "/job:" in batch.size.device else None
  device = "" if record is None else record.cluster.task.name + "/device:CPU:0"

  def hear():
    with tf.device(device):
      text = tf.numpy_function(
        reporter.report, [batch.bad_places, batch.bad_values] + list(batch.read), tf.string,
        name=python_calls.REPORT)
      text.set_shape([])
    if late is None:
      return _raise(text)
    # The good records first: what is raised waits for the next run.
    return tf.cond((batch.size > 0) & tf.not_equal(text, ""), lambda: _after(late.enqueue(text)),
                   lambda: _raise(text))

  is_rare = tf.size(batch.bad_places) > 0
  if batch.read:
    is_rare |= batch.read[0] < 0
  with tf.control_dependencies([tf.cond(is_rare, hear, lambda: tf.constant(True))]):
    return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


def _raise(text):
  return _after(tf.debugging.Assert(tf.equal(text, ""), [text]))


def _after(op):
  with tf.control_dependencies([op]):
    return tf.constant(True)


def explain_bad_record(error: BaseException) -> BaseException:
  """Says what an error of a run means.

  Args:
    error: what the run raised.

  Returns:
    The error that Python had for a bad record, if it is about one; with the file's name that of a
    damaged file; else the error itself.
  """
  if isinstance(error, tf.errors.InvalidArgumentError):
    found = re.search(_TEXT + r"(\d+): ", error.message)
    if found:
      return _raised.get(int(found.group(1)), error)
  return damaged_files.explain(error)


class _Reporter:
  """Hears of bad records."""

  def __init__(self, graph, decode):
    self._graph = graph
    self._decode = decode

  def report(self, bad_places, values, read=0):
    """Returns a text for the error that ends the run, or none."""
    policy = bad_records.bad_records_of_graph(self._graph)
    is_last, read = read < 0, int(read if read >= 0 else -1 - read)
    try:
      for place, value in zip(bad_places, values):
        key, reason = places.name(self._graph, place), _reason(self._decode, value)
        if not policy.skips:
          raise bad_records.located(reason, key)
        policy.skip(key, reason.message, read)
      if is_last:
        policy.check_at_end(read)
    except (tf.errors.OpError, bad_records.TooManyBadRecordsError) as error:
      return _remember(error)
    if is_last:
      raise StopIteration("the data are over")  # in the run: OutOfRangeError
    return b""


def _reason(decode, value) -> tf.errors.InvalidArgumentError:
  """What the decoder says of one record."""
  text = "the record cannot be decoded"
  try:
    if tf.__version__.startswith("1."):
      value.decode("utf-8")  # 1.15 crashes at the text of an error that quotes what is no UTF-8
    with tf.Graph().as_default(), tf.Session() as session:
      session.run(decode(tf.constant([value])))
  except tf.errors.OpError as error:
    text = error_line(error)
  except UnicodeDecodeError as error:  # TensorFlow's text quotes the record
    if error.object != value:
      text = error_line(ValueError(error.object.decode("utf-8", "replace")))
  except Exception:  # it needs more than the record, such as a table of the graph
    pass
  return tf.errors.InvalidArgumentError(None, None, text)


def _remember(error) -> bytes:
  with _lock:
    number = next(_numbers)
    _raised[number] = error
    while len(_raised) > _REMEMBERED:
      _raised.popitem(last=False)
  what = getattr(error, "message", None) or str(error)
  return ("%s%d: %s" % (_TEXT, number, what)).encode("utf-8")
