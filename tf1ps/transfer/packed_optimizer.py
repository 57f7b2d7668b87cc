"""Optimizers around other optimizers: a base class, and an optimizer that sends few messages.

    optimizer = PackedOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, global_step)

`PackedOptimizer.apply_gradients` packs the gradients (buckets.py) and then the reads of the model,
which is complete at that point (fetch.py). It also keeps the optimizer's constants on the ps
(local_copies.py). Variables, slots and checkpoints are those of the inner optimizer. For
synchronous updates `tf1ps.SyncReplicasOptimizer` takes the same two keywords.
"""

from __future__ import annotations

from typing import Any, Iterable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.transfer import buckets, fetch, flat_buffers, local_copies, wire
from tf1ps.transfer.wire_options import DEFAULT_PACK_BYTES


def apply_and_count(optimizer: tf.train.Optimizer, grads_and_vars, global_step=None,
                    name=None) -> tf.Operation:
  """Builds an update that raises the global step by 1, even if the optimizer does not raise it.

  An optimizer with its own `apply_gradients` may ignore the global step, such as BERT's
  AdamWeightDecayOptimizer. Training would then never reach its last step.

  Args:
    optimizer: makes the update.
    grads_and_vars, global_step, name: as for the optimizer's `apply_gradients`.
  """
  if global_step is None:
    return optimizer.apply_gradients(grads_and_vars, name=name)
  # In a branch, the operations of the optimizer take a different tensor as the variable's handle.
  # The value that is read in the branch shows which tensor.
  handle = global_step.read_value()
  while handle.op.type in ("Identity", "ReadVariableOp"):
    handle = handle.op.inputs[0]
  before = set(handle.consumers())
  done = optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
  new = [op for op in handle.consumers() if op not in before]
  if any(op.type not in ("Identity", "ReadVariableOp", "VarIsInitializedOp") for op in new):
    return done
  with tf.control_dependencies([done]), tf.colocate_with(global_step.op):
    return tf.assign_add(global_step, 1, use_locking=True).op


class WrappingOptimizer(tf.train.Optimizer):
  """Passes calls on to an inner optimizer, which computes gradients and has the slots."""

  def __init__(self, opt: tf.train.Optimizer, use_locking: bool, name: str):
    """Creates an optimizer around `opt`; raises TypeError if `opt` is not an optimizer."""
    if not hasattr(opt, "compute_gradients") or not hasattr(opt, "apply_gradients"):
      raise TypeError("opt must be a tf.train.Optimizer, got %r" % (opt,))
    super().__init__(use_locking, name)
    self._opt = opt

  def compute_gradients(self, loss: tf.Tensor, *args: Any, **kwargs: Any) -> List[tuple]:
    """Computes gradients like the inner optimizer."""
    return self._opt.compute_gradients(loss, *args, **kwargs)

  def get_slot(self, *args: Any, **kwargs: Any) -> Optional[tf.Variable]:
    """Returns a slot of the inner optimizer."""
    return self._opt.get_slot(*args, **kwargs)

  def get_slot_names(self, *args: Any, **kwargs: Any) -> List[str]:
    """Returns the names of the inner optimizer's slots."""
    return self._opt.get_slot_names(*args, **kwargs)

  def variables(self) -> List[tf.Variable]:
    """Returns the inner optimizer's variables."""
    return self._opt.variables()


class PackedOptimizer(WrappingOptimizer):
  """Makes the updates of another optimizer with fewer messages.

  Attributes:
    arrivals: the `Arrival`s of `fetch_variables`, after `apply_gradients` was called.
  """

  def __init__(self, opt: tf.train.Optimizer, pack_bytes: int = DEFAULT_PACK_BYTES,
               wire_dtype: str = "float32", name: str = "Packed"):
    """Creates the optimizer.

    Args:
      opt: the optimizer that updates the variables.
      pack_bytes: variables of this size or more travel alone; 0: all variables travel alone.
      wire_dtype: the type that float32 values and gradients are sent as, one of `WIRE_DTYPES`;
        "int8" applies only to the gradients.
      name: the name of the optimizer.

    Raises:
      ValueError: if an argument is out of its range.
    """
    super().__init__(opt, False, name)
    flat_buffers.check_pack_bytes(pack_bytes)
    wire.check_wire_dtype(wire_dtype)
    self._pack_bytes, self._wire_dtype = pack_bytes, wire_dtype
    self.arrivals: List[fetch.Arrival] = []

  def apply_gradients(self, grads_and_vars: Iterable[tuple],
                      global_step: Optional[tf.Variable] = None,
                      name: Optional[str] = None) -> tf.Operation:
    """Sends gradients to the ps and applies them there like the inner optimizer.

    Call it once, after the whole model is built and before a session runs the graph.
    """
    pairs = buckets.pack_gradients(list(grads_and_vars), self._pack_bytes, self._wire_dtype)
    train_op = apply_and_count(self._opt, pairs, global_step, name)
    self.arrivals = fetch.fetch_variables(self._pack_bytes, self._wire_dtype)
    local_copies.keep_constants_local()
    return train_op
