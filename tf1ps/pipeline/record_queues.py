"""From readers to batches: the two queues that every pipeline of readers.py has.

1. Each reader has a thread, which reads many records at once and puts them into a queue of pairs:
   where a record stands, and the record. With `shuffle` that queue gives them in random order.
2. Decoding threads take a batch of pairs and decode it by one call. The pairs of such a batch are
   marked as a record source, so that an error of the decoder names the record.
3. What was decoded waits as a whole batch in a short queue, so that the model's batches are there
   before they are asked for. With `pad` it waits record by record, in a queue that pads a batch.

When the readers have ended, each queue closes behind the one before it: what is inside still comes
out, the last batch is what is left, and then there is an OutOfRangeError.
"""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.pipeline.graph_input import add_record_source

_BATCHES = 8  # decoded ones that wait


class Plan(NamedTuple):
  """How records become batches."""

  batch_size: int
  shuffle: Optional[int]  # records that wait, so that one of them comes at random; None: in order
  seed: Optional[int]  # of the shuffling
  read_up_to: int  # records that a reader hands on at a time
  num_decoders: int  # threads
  drop_remainder: bool  # whether a last batch of fewer records is left out
  pad: bool  # whether records of different shapes are padded to that of the largest in a batch
  endless: bool  # whether the data never ends


def batches(pairs: List[Tuple[tf.Tensor, tf.Tensor]], decode: Callable[[tf.Tensor], Any],
            plan: Plan) -> Any:
  """Builds the queues and their runners.

  Args:
    pairs: (keys, values) of each reader: string vectors of equal length.
    decode: takes a string vector [n] and returns tensors, in any structure, whose first dimension
      is n.
    plan: how.

  Returns:
    The tensors of one batch, in the structure that `decode` returned.

  Raises:
    ValueError: decode returned no tensors of such a shape.
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
  leaves = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(
    decoded, expand_composites=True)]
  _check(decoded, leaves)
  make = _padded if plan.pad else _whole
  found = make(leaves, plan)
  return tf.nest.pack_sequence_as(decoded, found, expand_composites=True)


def _queue_of_pairs(pairs, plan):
  # Room for the reader to go on while the decoders take what it has read before.
  room = 2 * max(plan.read_up_to, plan.batch_size)
  types, shapes = [tf.string], [[2]]  # a pair in one tensor: a queue's cost is that of its tensors
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
        "decode takes the records of a batch, a string vector, and must return tensors whose first "
        "dimension is its length; got a scalar, %r" % leaf)
