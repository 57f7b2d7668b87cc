"""`tf1ps.SyncReplicasOptimizer`, a drop-in for `tf.train.SyncReplicasOptimizer`.

The same arguments, and synchronous: every update is the mean of exactly one gradient from each of
`replicas_to_aggregate` replicas, made by whoever comes last (turns.py). A training step

1. computes this replica's gradients, and writes them into its rows beside the variables
   (gradient_exchange.py); with spare replicas only if they are not too late already;
2. enters the lock of the turn: notes that it has come, and if it is the last, makes the update;
3. waits for its token.

What is different from TensorFlow's: there is no queue runner, so none to wait for at the end;
a replica needs an index, and joins before its first step (its hook does it); who leaves tells the
others; gradients that came too late are counted, by replica.
"""

from __future__ import annotations

import hashlib
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.replication import gradient_exchange, gradients, sync_hook, turns
from tf1ps.transfer import (
  WrappingOptimizer,
  check_pack_bytes,
  check_wire_dtype,
  fetch_variables,
  keep_constants_local,
  make_buckets,
  task_of_device,
)


class SyncReplicasOptimizer(WrappingOptimizer):
  """A `tf.train.SyncReplicasOptimizer` that is synchronous.

  Attributes:
    turns: the `turns.Turns`, once apply_gradients was called.
    turn: the `turns.Turn` of the training step.
    local_step_init_op: joins, for a loop without the hook; run it once in each session.
    chief_init_op: the same, for the chief.
    may_begin: to feed with 0 when one of these is run on servers where a new job finds no old book.
    look, nudge, leaver, end_op: for the hook.
    leave_op: leaves, for a loop without the hook; run it once when this replica's data have ended.
    rules: the `turns.Rules`.
  """

  def __init__(self, opt: tf.train.Optimizer, replicas_to_aggregate: int,
               total_num_replicas: Optional[int] = None, variable_averages=None,
               variables_to_average=None, use_locking: bool = False, name: str = "sync_replicas",
               *, replica_index: Optional[int] = None, on_uneven: str = turns.STOP_ALL,
               clip_norm: Optional[float] = None, pack_bytes: int = 0,
               wire_dtype: str = "float32"):
    """Creates the optimizer, like TensorFlow's; what follows `name` is ours.

    Args:
      opt: makes the updates.
      replicas_to_aggregate: how many gradients, of as many replicas, make an update.
      total_num_replicas: how many replicas there are; None: replicas_to_aggregate. Those above it
        are spare: the slowest are not waited for.
      variable_averages: a `tf.train.ExponentialMovingAverage` of the variables, or None.
      variables_to_average: the variables that it averages.
      use_locking: of TensorFlow's base class; an update is made by one replica under a lock anyway.
      name: of the optimizer; all replicas use the same.
      replica_index: this replica's, from 0; None: that of this process's `tf1ps.Server`.
      on_uneven: what the end of one replica's data means. "stop_all": training ends for all.
        "pad": it counts as one that comes to every turn with nothing, so that the mean is taken
        over those who have data. "shrink": the others go on, waiting for one less.
      clip_norm: the global norm that the aggregated gradient is clipped to, or None.
      pack_bytes: gradients and values of variables below so many bytes travel together
        (`groups.DEFAULT_PACK_BYTES` is a good value); 0: each alone. The same in all replicas.
      wire_dtype: what float32 gradients and values are sent as: "float32", "bfloat16" or "float16".

    Raises:
      ValueError: numbers that cannot work together, or an index that nobody knows.
    """
    super().__init__(opt, use_locking, name)
    total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
    for what, value in (("replicas_to_aggregate", replicas_to_aggregate),
                        ("total_num_replicas", total)):
      if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError("%s must be a number of replicas, 1 or more, got %r" % (what, value))
    if replicas_to_aggregate > total:
      raise ValueError(
        "replicas_to_aggregate=%d of total_num_replicas=%d: an update is the mean of one gradient "
        "of each replica, so it must be %d or less" % (replicas_to_aggregate, total, total))
    if on_uneven not in turns.ON_UNEVEN:
      raise ValueError("on_uneven must be one of %s, got %r" % (
        ", ".join(turns.ON_UNEVEN), on_uneven))
    if clip_norm is not None and not clip_norm > 0:
      raise ValueError("clip_norm must be above 0, got %r" % (clip_norm,))
    if variable_averages is not None and not variables_to_average:
      raise ValueError("variable_averages needs variables_to_average")
    self._index = _replica_index(replica_index, total)
    self.rules = turns.Rules(total, int(replicas_to_aggregate), on_uneven)
    self._averages = variable_averages
    self._averaged = variables_to_average
    self._clip_norm = clip_norm
    check_pack_bytes(pack_bytes)
    check_wire_dtype(wire_dtype)
    self._pack_bytes, self._wire_dtype = pack_bytes, wire_dtype
    self._losses = []  # of which gradients were computed
    self.turns = self.turn = None
    self.local_step_init_op = self.chief_init_op = None
    self.leave_op = self.leaver = None

  @property
  def ready_for_local_init_op(self):
    """What a Supervisor looks at before it runs local_step_init_op."""
    self._check_built("ready_for_local_init_op")
    return tf.report_uninitialized_variables(tf.global_variables())

  def compute_gradients(self, loss, *args, **kwargs):
    """Computes gradients like the inner optimizer."""
    self._losses.append(loss)
    return super().compute_gradients(loss, *args, **kwargs)

  def apply_gradients(self, grads_and_vars, global_step=None, name=None, *, loss=None):
    """Builds the training step.

    Args:
      grads_and_vars: as `compute_gradients` returns them.
      global_step: the variable that counts updates.
      name: of the operation.
      loss: a float tensor, that of the gradients: `turn.loss` is its mean over the replicas. None:
        the one that `compute_gradients` was called with, where that was called once.

    Returns:
      The operation: when it is done, this replica's gradient is in the update, or was too late.

    Raises:
      ValueError: no global step, no gradients, a loss that is no float tensor, or a second call.
    """
    if global_step is None:
      raise ValueError("SyncReplicasOptimizer needs a global_step to count updates by")
    if self.turns is not None:
      raise ValueError("apply_gradients was called before: make another SyncReplicasOptimizer")
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
    if not pairs:
      raise ValueError("there is no gradient for any variable")
    losses = self._losses if loss is None and len(self._losses) == 1 else [loss]
    is_loss = tf.is_tensor(losses[0]) and losses[0].dtype.is_floating
    if loss is not None and not is_loss:
      raise ValueError("loss must be a float tensor, got %r" % (loss,))
    loss = losses[0] if is_loss else None
    self._global_step = global_step
    self._scope = tf.get_default_graph().get_name_scope()
    with tf.name_scope(name, self._name):
      shared_name = _shared_name(self._name, pairs)
      home = task_of_device(global_step.device)
      self.turns = turns.Turns(self.rules, self._index, shared_name, home)
      self._exchange = gradient_exchange.GradientExchange(
        make_buckets(pairs, self._pack_bytes, self._wire_dtype, from_anywhere=True),
        self.turns, shared_name)
      self._build_life()
      self.turn = self.turns.come(self._update, self._exchange.push(), loss)
      if self._pack_bytes or self._wire_dtype != "float32":
        fetch_variables(self._pack_bytes, self._wire_dtype)
        keep_constants_local()
      return tf.group(*[part for part in self.turn if part is not None], name="train")

  def get_chief_queue_runner(self):
    """Returns a queue runner with nothing to do: there is no chief's thread."""
    self._check_built("get_chief_queue_runner")
    with tf.control_dependencies(None):
      nothing = tf.queue.FIFOQueue(1, [tf.bool], name="nothing_to_run")
      return tf.train.QueueRunner(nothing, [nothing.close(cancel_pending_enqueues=True)])

  def get_init_tokens_op(self, num_tokens=-1):
    """Returns an operation that does nothing: there are no tokens in advance."""
    self._check_built("get_init_tokens_op")
    return tf.no_op(name="no_tokens")

  def make_session_run_hook(self, is_chief, num_tokens=-1, *, start_timeout=60.0):
    """Returns the hook that joins, watches the other replicas, and leaves at the end.

    Args:
      is_chief: whether this replica is the chief.
      num_tokens: ignored: there are no tokens in advance.
      start_timeout: seconds that the others may take to come.
    """
    return sync_hook.SyncReplicasHook(self, is_chief, start_timeout)

  def _check_built(self, method):
    if self.turns is None:
      raise ValueError("%s should be called after apply_gradients()" % method)

  def _build_life(self):
    """What a replica runs beside its training steps; none of it needs the model's gradients."""
    with tf.control_dependencies(None), tf.name_scope("replica"):
      self.may_begin = tf.placeholder_with_default(tf.constant(1, tf.int64), [], "may_begin")
      make_rows = self._exchange.make_where_absent
      self.local_step_init_op = self.turns.join(make_rows, self.may_begin)
      self.chief_init_op = self.turns.join(make_rows, self.may_begin, is_chief=True)
      self.look = self.turns.look()
      self.nudge = self.turns.nudge()
      self.end_op = self.turns.end()
      if self.rules.on_uneven == turns.SHRINK:
        self.leaver = tf.placeholder_with_default(tf.constant(self._index, tf.int64), [], "leaver")
        self.leave_op = self.turns.drop(self.leaver, self._update)
      else:
        self.leave_op = self.turns.leave(self._update)
      tf.add_to_collection(turns.WIPES, self.turns.wipe())
      tf.add_to_collection(turns.TEARS, self.turns.is_torn())

  def _update(self, came):
    """Makes the update from the rows of those who came; returns the global step after it."""
    grads_and_vars = self._exchange.means(came)
    with tf.device(task_of_device(self._global_step.device)):
      if self._clip_norm is not None:
        grads_and_vars = gradients.clip_gradients(grads_and_vars, self._clip_norm)
      # Its variables have the names that they have without this one: checkpoints fit both.
      with tf.name_scope(self._scope + "/" if self._scope else None):
        done = [self._opt.apply_gradients(grads_and_vars, self._global_step)]
      if self._averages is not None:
        with tf.control_dependencies(done):
          done = [self._average(variable) for variable in self._averaged]
      with tf.control_dependencies(done):
        return tf.identity(self._global_step.read_value())

  def _average(self, variable):
    # Elsewhere than beside the variable, it would be made from a copy from before the update.
    with tf.get_default_graph().colocate_with(variable.op):
      return self._averages.apply([variable])


def _shared_name(name, pairs) -> str:
  """A name that only optimizers of the same variables share."""
  names = ",".join(sorted(variable.op.name for _, variable in pairs))
  return "%s:%s" % (name, hashlib.sha256(names.encode("utf-8")).hexdigest()[:12])


def _replica_index(given, total) -> int:
  index = given
  if index is None:
    record = latest_record()
    if record is None:
      raise ValueError(
        "which replica is this? Make a tf1ps.Server in this process before the optimizer, or give "
        "replica_index=")
    index = record.cluster.replica_index
    if index is None:
      raise ValueError("%s does not train: only workers make a SyncReplicasOptimizer" % (
        record.cluster.task.name))
  if isinstance(index, bool) or int(index) != index or not 0 <= index < total:
    raise ValueError("replica_index must be 0 to %d, got %r: total_num_replicas is %d" % (
      total - 1, index, total))
  return int(index)
