"""Arrays that are loaded once into variables on the worker, and then read in batches.

1. `preloaded_variables` makes a variable for each array. It is not trainable and in no collection:
   nothing saves, restores or trains it, and no task waits for it on a ps. The graph does not
   contain the data, because a graph cannot be larger than 2 GB.
2. The variable's initialiser, which takes the array from this Python process, is in the collection
   TABLE_INITIALIZERS. Every monitored session runs it, also after a recovery, and so do the
   sessions of a program. In a session of your own run `tf.tables_initializer()`; for
   `preloaded_batches` also run `tf.local_variables_initializer()` and start the queue runners.
3. `preloaded_batches` divides the rows. A queue holds their numbers, all of them in each epoch, and
   a batch is gathered by the numbers that it takes. `slice_input_producer` does this row by row.

The arrays must stay in memory and must not change, because a recovery loads them again.
"""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import on_worker, producers
from tf1ps.pipeline import shard as shard_lib


def preloaded_variables(
  arrays: Any, name: str = "preloaded", worker_device: Optional[str] = None
) -> Any:
  """Loads arrays into variables of the worker; returns the same structure of their values.

  Gather from them, or give them to `slice_input_producer`.

  Args:
    arrays: a numpy array, or any structure of them, of numbers or strings.
    name: the name of the variables.
    worker_device: as for `on_worker.scope`.

  Raises:
    TypeError: an element is no numpy array.
  """
  leaves = [_checked(leaf) for leaf in tf.nest.flatten(arrays)]
  with on_worker.scope(worker_device), tf.name_scope(name):
    tensors = [_variable(leaf, name) for leaf in leaves]
  return tf.nest.pack_sequence_as(arrays, tensors)


def preloaded_batches(shard: shard_lib.Shard, arrays: Any, shuffle: bool = True,
                      drop_remainder: bool = False, *, seed: Optional[int] = None,
                      worker_device: Optional[str] = None) -> Any:
  """Makes batches of this worker's rows of preloaded arrays, in the same structure.

  In training each epoch has all rows, in another order, and a batch may have rows of two epochs. In
  evaluation and prediction the rows come once and in order. After the last row a run raises
  OutOfRangeError. Several threads may run the batch at the same time.

  Args:
    shard: this worker's share. The rows are divided, unless the policy or the program has divided
      files; the worker loads only its own.
    arrays: as for `preloaded_variables`, all with the same first dimension, in the same order
      on all workers.
    shuffle: whether the rows are shuffled in training.
    drop_remainder: whether a last batch of fewer rows is dropped.
    seed: the seed of the shuffling.
    worker_device: as for `on_worker.scope`.

  Raises:
    TypeError: an element is no numpy array.
    ValueError: the arrays differ in length, or there is no row for this worker.
  """
  leaves = [_checked(leaf) for leaf in tf.nest.flatten(arrays)]
  lengths = sorted({len(leaf) if leaf.ndim else -1 for leaf in leaves})
  if len(lengths) != 1 or lengths[0] < 0:
    raise ValueError("preloaded arrays must have the same number of rows, got the shapes %s" % (
      ", ".join(str(leaf.shape) for leaf in leaves) or "of nothing"))
  leaves = _share(shard, leaves)
  rows = len(leaves[0])
  shard.sizes.append(rows)
  if not rows:
    raise ValueError("there is no row for worker %d of %d: the preloaded arrays have %d rows" % (
      shard.index, shard.count, lengths[0]))
  with on_worker.scope(worker_device), tf.name_scope("preloaded"):
    trains = shard.mode == "train"
    epochs = shard.epochs if trains else 1
    queue = producers.range_input_producer(
      tf.constant(rows, tf.int64), epochs, shuffle and trains, seed,
      capacity=max(32, 4 * shard.batch_size))
    take = queue.dequeue_many if drop_remainder or epochs is None else queue.dequeue_up_to
    numbers = take(shard.batch_size)
    found = [tf.gather(_variable(leaf, "rows"), numbers) for leaf in leaves]
  return tf.nest.pack_sequence_as(arrays, found)


def _checked(leaf):
  if not isinstance(leaf, np.ndarray):
    raise TypeError("preloaded data must be numpy arrays, got %r" % (leaf,))
  if leaf.dtype.kind in "US":  # TensorFlow takes bytes, as objects
    return np.array([tf.compat.as_bytes(one) for one in leaf.ravel().tolist()],
                    dtype=object).reshape(leaf.shape)
  return leaf


def _share(shard, leaves):
  """This worker's rows."""
  if shard.is_dynamic:
    raise shard_lib.ShardError("--shard=dynamic works only with tf.data, and this input is "
                               "preloaded data. Use --shard=records, or shard.dataset.")
  whole = (shard.mode != "train" or shard.policy in (shard_lib.FILES, shard_lib.NONE)
           or shard.divided == shard_lib.FILES)
  if whole:
    return leaves
  shard.divided = shard_lib.RECORDS
  if shard.count == 1:
    return leaves
  return [np.ascontiguousarray(leaf[shard.index::shard.count]) for leaf in leaves]


def _variable(array, name):
  dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
  value = tf.py_func(lambda: array, [], dtype, stateful=True, name="load")
  value.set_shape(array.shape)
  variable = tf.Variable(value, trainable=False, collections=[], use_resource=True, name=name)
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, variable.initializer)
  return variable.read_value()
