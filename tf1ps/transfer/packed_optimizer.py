"""An optimizer whose values and gradients travel together: packing for a hand-written loop.

    optimizer = packed_optimizer.PackedOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, global_step)

`apply_gradients` has the gradients put together (packing.py) and then the reads of the model, which
is complete by then (pulls.py); the optimizer's constants stay on the ps (constants.py). Variables,
slots and checkpoints are those of the optimizer inside. For synchronous updates
`tf1ps.SyncReplicasOptimizer` takes the same two keywords.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.transfer import constants, groups, packing, pulls, wire, wrapping_optimizer


class PackedOptimizer(wrapping_optimizer.WrappingOptimizer):
  """Another optimizer's updates, by fewer messages.

  Attributes:
    arrivals: what comes from the ps otherwise than before, once apply_gradients was called.
  """

  def __init__(self, opt: tf.train.Optimizer, pack_bytes: int = groups.DEFAULT_PACK_BYTES,
               wire_dtype: str = "float32", name: str = "Packed"):
    """Creates the optimizer.

    Args:
      opt: makes the updates.
      pack_bytes: variables of so many bytes or more travel alone; 0: all do.
      wire_dtype: what float32 values and gradients are sent as: "float32", "bfloat16", "float16".
      name: of the optimizer.

    Raises:
      ValueError: arguments out of their range.
    """
    super().__init__(opt, False, name)
    groups.check_pack_bytes(pack_bytes)
    wire.check_wire_dtype(wire_dtype)
    self._pack_bytes, self._wire_dtype = pack_bytes, wire_dtype
    self.arrivals = []

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    """Applies gradients like the inner optimizer, after they have travelled.

    To be called once, when the whole graph is built and no session has run it.
    """
    pairs = packing.pack_gradients(grads_and_vars, self._pack_bytes, self._wire_dtype)
    train_op = self._opt.apply_gradients(pairs, global_step, name)
    self.arrivals = pulls.fetch_variables(self._pack_bytes, self._wire_dtype)
    constants.keep_constants_local()
    return train_op
