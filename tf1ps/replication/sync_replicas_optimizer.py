"""`tf1ps.SyncReplicasOptimizer`, a drop-in for `tf.train.SyncReplicasOptimizer`.

It takes the same arguments, and is synchronous: every update applies the mean of exactly one
gradient from each of `replicas_to_aggregate` replicas. The last of these replicas makes the update
(rounds.py). A training step

1. computes this replica's gradients, and writes them into its rows beside the variables
   (gradient_exchange.py). With spare replicas it writes them only if they are not already too late;
2. arrives at the round, under a lock. The last replica makes the update;
3. waits for its token.

Unlike TensorFlow's class it has no queue runner. A replica needs an index, and joins before its
first step: by its hook or, without the hook, when the local variables are initialised. A replica
that leaves informs the others. Late gradients are counted.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, Dict, Iterable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.compat import START_TIMEOUT
from tf1ps.graph import task_of_device
from tf1ps.replication import gradient_exchange, gradients, rounds, session_ops, sync_hook
from tf1ps.replication.uneven import ON_UNEVEN, STOP_ALL, UNEVEN_POLICIES
from tf1ps.transfer import (
  WrappingOptimizer,
  apply_and_count,
  check_pack_bytes,
  check_wire_dtype,
  fetch_variables,
  keep_constants_local,
  make_buckets,
  pack_bytes_of_process,
)

# A global of the process and not a graph collection, which a meta graph would write.
_built: weakref.WeakSet = weakref.WeakSet()


def sync_optimizers(graph: tf.Graph) -> List["SyncReplicasOptimizer"]:
  """Returns the `SyncReplicasOptimizer`s whose training step is in a graph.

  A Supervisor asks for them: programs pass it operations of the optimizer, and no hook.
  """
  optimizers = [optimizer for optimizer in _built if optimizer.graph is graph]
  return sorted(optimizers, key=lambda optimizer: optimizer.get_name())


class SyncReplicasOptimizer(WrappingOptimizer):
  """A `tf.train.SyncReplicasOptimizer` that is synchronous.

  Attributes:
    rules: the `rounds.RoundRules`.
    rounds: the `rounds.Rounds`, once apply_gradients was called.
    round_result: the `RoundResult` of the training step.
    ready_for_local_init_op: the operation that a Supervisor looks at before it joins.
    may_begin: a placeholder: feed 0 if a chief clears the state of an earlier job.
    leave_op: leaves, for a loop without the hook; run it once when this replica's data have ended.
    leaver: a placeholder for the index of the replica that `leave_op` drops, by default this
      replica. None: the policy for uneven data allows no replica to drop another replica.
    end_op: ends training for all replicas.
    finish_pass: with on_uneven "repeat", notes that this replica's data have ended and begin again;
      its value, a bool scalar, is whether training has ended for all. None: another policy.
    look: the state of the rounds, for `rounds.view_rounds`.
    resend: puts a token for this replica again, in case its token was lost.
  """

  def __init__(self, opt: tf.train.Optimizer, replicas_to_aggregate: int,
               total_num_replicas: Optional[int] = None,
               variable_averages: Optional[tf.train.ExponentialMovingAverage] = None,
               variables_to_average: Optional[Sequence[tf.Variable]] = None,
               use_locking: bool = False, name: str = "sync_replicas", *,
               replica_index: Optional[int] = None, on_uneven: str = STOP_ALL,
               clip_norm: Optional[float] = None, pack_bytes: Optional[int] = None,
               wire_dtype: str = "float32", replica_id: Optional[int] = None):
    """Creates the optimizer, like TensorFlow's; TensorFlow has no arguments after `name`.

    Args:
      opt: makes the updates.
      replicas_to_aggregate: the number of gradients, of as many replicas, that make an update.
      total_num_replicas: the number of replicas; None: replicas_to_aggregate. With more replicas
        than replicas_to_aggregate, a round does not wait for the slowest replicas.
      variable_averages: a `tf.train.ExponentialMovingAverage` of the variables, or None.
      variables_to_average: the variables that it averages.
      use_locking: as in TensorFlow's base class; a replica makes an update under a lock anyway.
      name: the name of the optimizer, which must be the same in all replicas. Two optimizers of the
        same variables need different names.
      replica_index: this replica's index, from 0; None: the index of this process's `tf1ps.Server`.
      on_uneven: the effect of the end of a replica's data. "stop_all": training ends for all.
        "repeat": the replica repeats its data until all replicas have gone through their data; then
        training ends for all. If you write the loop, run `finish_pass` at the end of the data, and
        initialise the iterators again if its value is False.
        "pad": the replica counts as arrived in every later round, and the mean is taken over the
        replicas that have data. "shrink": the others continue, and wait for one gradient fewer.
      clip_norm: the global norm that the aggregated gradient is clipped to, or None.
      pack_bytes: gradients and values of variables below this size travel together; 0: each travels
        alone; None: TF1PS_PACK_BYTES, which is 524288 by default. It must be the same in all
        replicas.
      wire_dtype: the type of float32 gradients and values on the wire: "float32", "bfloat16",
        "float16" or "int8", which is for the gradients alone.
      replica_id: this replica's index, as in TensorFlow before 1.0; it is used only if
        replica_index is None and the process has no `tf1ps.Server`.

    Raises:
      ValueError: numbers cannot work together, or an index is out of range.
    """
    super().__init__(opt, use_locking, name)
    total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
    # A program that only evaluates may also make an optimizer, but applies no gradients.
    self._problem = ""
    if not isinstance(replicas_to_aggregate, bool) and replicas_to_aggregate == total == 0:
      self._problem = "there are 0 replicas: replicas_to_aggregate must be 1 or more"
      replicas_to_aggregate = total = 1
    for what, value in (("replicas_to_aggregate", replicas_to_aggregate),
                        ("total_num_replicas", total)):
      if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError("%s must be a number of replicas, 1 or more, got %r" % (what, value))
    if replicas_to_aggregate > total:
      raise ValueError(
        "replicas_to_aggregate=%d of total_num_replicas=%d: an update is the mean of one gradient "
        "per replica, so it must be %d or less. To use several batches of a replica in one update, "
        "give the replica a larger batch" % (replicas_to_aggregate, total, total))
    if on_uneven not in ON_UNEVEN:
      raise ValueError("on_uneven must be one of %s, got %r" % (", ".join(ON_UNEVEN), on_uneven))
    if UNEVEN_POLICIES[on_uneven].repeats and replicas_to_aggregate < total:
      raise ValueError(
        "on_uneven=repeat needs a gradient of each replica in every update, but an update takes %d "
        "of %d: training would wait forever for the data of a lost replica. Leave "
        "replicas_to_aggregate out, or use on_uneven=pad" % (
          replicas_to_aggregate, total))
    if clip_norm is not None and not clip_norm > 0:
      raise ValueError("clip_norm must be above 0, got %r" % (clip_norm,))
    if variable_averages is not None and not variables_to_average:
      raise ValueError("variable_averages needs variables_to_average")
    self._index = _replica_index(replica_index, total, replica_id)
    if self._index is None:
      self._problem = (
        "the index of this replica is not known. Make a tf1ps.Server in this process before the "
        "optimizer, or give replica_index=.")
    self.rules = rounds.RoundRules(int(total), int(replicas_to_aggregate), on_uneven)
    self._averages = variable_averages
    self._averaged = variables_to_average
    self._clip_norm = clip_norm
    pack_bytes = pack_bytes_of_process() if pack_bytes is None else pack_bytes
    check_pack_bytes(pack_bytes)
    check_wire_dtype(wire_dtype)
    self._pack_bytes, self._wire_dtype = pack_bytes, wire_dtype
    self._losses: List[tf.Tensor] = []  # the arguments of compute_gradients
    self._is_applied = False
    self.rounds: Any = None
    self.round_result: Any = None
    self.ready_for_local_init_op = None
    self.leave_op = self.leaver = self.finish_pass = None
    self._joined = None  # the local variable whose initialiser joins
    # {is_chief: the operation}; the graph of a replica needs one of the two operations.
    self._joins: Dict[bool, tf.Operation] = {}
    # A queue, an operation that fails because it is closed, an operation that does nothing.
    self._ending_queue: Any = None

  def compute_gradients(self, loss: tf.Tensor, *args: Any, **kwargs: Any) -> List[tuple]:
    """Computes gradients like the inner optimizer."""
    self._losses.append(loss)
    return super().compute_gradients(loss, *args, **kwargs)

  def apply_gradients(self, grads_and_vars: Iterable[tuple],
                      global_step: Optional[tf.Variable] = None, name: Optional[str] = None, *,
                      loss: Optional[tf.Tensor] = None) -> tf.Operation:
    """Builds the training step; when it ends, this replica's gradient was applied or was late.

    Args:
      grads_and_vars: as `compute_gradients` returns them.
      global_step: the variable that counts updates.
      name: of the operation.
      loss: the float tensor of the loss: `round_result.loss` is its mean over the replicas. None:
        the argument of `compute_gradients`, if that was called once.

    Raises:
      ValueError: no global step, no gradients, a loss of another type, a second call, another
        optimizer of the same name and variables, no replica, or an unknown index.
    """
    if self._problem or self._index is None:
      raise ValueError(self._problem)
    if global_step is None:
      raise ValueError("Global step is required to check staleness: give apply_gradients the "
                       "variable that counts updates")
    if self.rounds is not None:
      raise ValueError("apply_gradients was called before: make another SyncReplicasOptimizer")
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
    if not pairs:
      raise ValueError("Must supply at least one variable: there is no gradient for any")
    losses: List[Any] = self._losses if loss is None and len(self._losses) == 1 else [loss]
    is_loss = tf.is_tensor(losses[0]) and losses[0].dtype.is_floating
    if loss is not None and not is_loss:
      raise ValueError("loss must be a float tensor, got %r" % (loss,))
    loss = losses[0] if is_loss else None
    self._global_step = global_step
    self._scope = tf.get_default_graph().get_name_scope()
    _built.add(self)
    with tf.name_scope(name, self._name):
      shared_name = _shared_name(self._name, pairs)
      home = task_of_device(global_step.device)
      self.rounds = rounds.Rounds(self.rules, self._index, shared_name, home)
      self._exchange = gradient_exchange.GradientExchange(
        make_buckets(pairs, self._pack_bytes, self._wire_dtype, from_anywhere=True),
        self.rounds, shared_name)
      self._build_lifecycle()
      self.round_result = self.rounds.arrive(self._update, self._exchange.push(), loss)
      if self._pack_bytes or self._wire_dtype != "float32":
        fetch_variables(self._pack_bytes, self._wire_dtype)
        keep_constants_local()
      return tf.group(*[part for part in self.round_result if part is not None], name="train")

  def get_chief_queue_runner(self) -> tf.train.QueueRunner:
    """Returns a queue runner whose thread ends immediately, because a chief needs no thread."""
    self._check_built("Should")
    queue, ends, nothing = self._ending_queue
    return tf.train.QueueRunner(queue, [ends], close_op=nothing, cancel_op=nothing)

  def get_init_tokens_op(self, num_tokens: int = -1) -> tf.Operation:
    """Returns an operation that does nothing, because no tokens are needed in advance."""
    self._check_built("get_init_tokens_op() should")
    return self._ending_queue[2]

  def get_clean_up_op(self) -> tf.Operation:
    """Returns an operation that does nothing, for programs written before TensorFlow 1.0."""
    return self.get_init_tokens_op()

  def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1, *,
                            start_timeout: float = START_TIMEOUT) -> sync_hook.SyncReplicasHook:
    """Returns the hook that joins, watches the other replicas, and leaves at the end.

    The other replicas may take `start_timeout` seconds to join. `num_tokens` is ignored.
    """
    return sync_hook.SyncReplicasHook(self, is_chief, start_timeout)

  @property
  def local_step_init_op(self) -> Optional[tf.Operation]:
    """Joins, for a loop without the hook that does not initialise the local variables.

    Run it once in each session. None before apply_gradients was called.
    """
    return None if self.rounds is None else self._join(is_chief=False)

  @property
  def chief_init_op(self) -> Optional[tf.Operation]:
    """The same as `local_step_init_op`, for the chief."""
    return None if self.rounds is None else self._join(is_chief=True)

  @property
  def joins(self) -> List[tf.Operation]:
    """The operations of `local_step_init_op` and `chief_init_op` that are in the graph."""
    return list(self._joins.values())

  @property
  def graph(self) -> Optional[tf.Graph]:
    """The graph of the training step; None before apply_gradients was called."""
    return None if self._joined is None else self._joined.graph

  @property
  def needs_others(self) -> bool:
    """Whether an update needs replicas whose training steps are not in this graph."""
    return self.rules.aggregate > len(sync_optimizers(self.graph))

  def join_by_hook(self) -> None:
    """Makes only the hook join, because it knows if a chief clears the state of earlier jobs."""
    graph: Any = self.graph
    local_variables = graph.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES)
    local_variables[:] = [variable for variable in local_variables if variable is not self._joined]

  def _check_built(self, should):
    if self.rounds is None:
      raise ValueError(should + " be called after apply_gradients().")

  def _build_lifecycle(self):
    """Builds the operations beside the training steps, which need no gradients of the model."""
    with tf.control_dependencies(None), tf.name_scope("replica") as self._scope_of_joins:
      self.may_begin = tf.placeholder_with_default(tf.constant(1, tf.int64), [], "may_begin")
      self._build_first_join()
      self.look = self.rounds.look()
      self.resend = self.rounds.resend()
      self.end_op = self.rounds.end()
      if self.rules.policy.repeats:
        self.finish_pass = self.rounds.finish_pass()
      if self.rules.policy.shrinks:
        self.leaver = tf.placeholder_with_default(tf.constant(self._index, tf.int64), [], "leaver")
        self.leave_op = self.rounds.drop(self.leaver, self._update)
      elif self.rules.policy.ends_all:
        self.leave_op = self.end_op
      else:
        self.leave_op = self.rounds.leave(self._update)
      session_ops.add_clear_op(self.rounds.clear())
      session_ops.add_partial_update(self.rounds.has_partial_update())

  def _build_first_join(self):
    """Builds the operations for loops without the hook, before the graph is final."""
    is_chief = not self._index
    join = self._build_join(is_chief)
    with _on_own_task():
      self._joined = tf.Variable(
        join, trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="joined")
      self._joins[is_chief] = tf.assign(self._joined, join).op
      queue = tf.queue.FIFOQueue(1, [tf.bool], name="closed")
      with tf.control_dependencies([queue.close(cancel_pending_enqueues=True)]):
        self._ending_queue = queue, queue.dequeue().op, tf.no_op(name="no_tokens")
    self.ready_for_local_init_op = tf.identity(
      tf.report_uninitialized_variables(tf.global_variables()))

  def _join(self, is_chief):
    """Returns the operation that joins in this role, and builds it if the graph lacks it."""
    if is_chief not in self._joins:
      with self.graph.as_default(), tf.control_dependencies(None), tf.name_scope(
          self._scope_of_joins):
        join = self._build_join(is_chief)
        with _on_own_task():
          self._joins[is_chief] = tf.assign(self._joined, join).op
    return self._joins[is_chief]

  def _build_join(self, is_chief) -> tf.Tensor:
    """Returns True, after this replica has joined."""
    join = self.rounds.join(self._exchange.make_where_absent, self.may_begin, is_chief)
    with _on_own_task(), tf.control_dependencies([join]):
      return tf.identity(True)

  def _update(self, arrived):
    """Makes the update of the replicas that arrived; returns the global step after it."""
    grads_and_vars = self._exchange.means(arrived)
    with tf.device(task_of_device(self._global_step.device)):
      if self._clip_norm is not None:
        grads_and_vars = gradients.clip_gradients(grads_and_vars, self._clip_norm)
      # The inner optimizer's variables have the names of a model without this class, for
      # checkpoints.
      with tf.name_scope(self._scope + "/" if self._scope else None):
        done = [self._apply(grads_and_vars)]
      if self._averages is not None:
        with tf.control_dependencies(done):
          done = [self._average(variable) for variable in self._averaged]
      with tf.control_dependencies(done):
        return tf.cast(self._global_step.read_value(), tf.int64)

  def _apply(self, grads_and_vars):
    """Makes the inner optimizer build the update, for a step and again for a leaving replica.

    The second call uses the variables that the first call has made.
    """
    if not self._is_applied:
      self._is_applied = True
      return apply_and_count(self._opt, grads_and_vars, self._global_step)
    before = {variable.name for variable in tf.global_variables()}
    with tf.variable_scope(
        tf.get_variable_scope(), reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
      done = apply_and_count(self._opt, grads_and_vars, self._global_step)
    further = [variable.op.name for variable in tf.global_variables()
               if variable.name not in before]
    if further:
      raise ValueError(
        "%s made new variables (%s) for the last update of a leaving replica. Make them by "
        "tf.get_variable or as slots, or use on_uneven=stop_all" % (
          type(self._opt).__name__, ", ".join(further)))
    return done

  def _average(self, variable):
    # On another device, the average would use a copy of the variable from before the update.
    with tf.get_default_graph().colocate_with(variable.op):
      return self._averages.apply([variable])


def _on_own_task():
  """Returns a scope for operations of this replica's task; a device setter would take a ps."""
  return tf.get_default_graph().colocate_with(tf.no_op())


def _shared_name(name, pairs) -> str:
  """Returns a name that only optimizers of the same variables share."""
  names = ",".join(sorted(variable.op.name for _, variable in pairs))
  return "%s:%s" % (name, hashlib.sha256(names.encode("utf-8")).hexdigest()[:12])


def _replica_index(given, total, before_1_0) -> Optional[int]:
  """Returns the index of this replica; None if it is not given and the process has no server."""
  index = 0 if given is None and total == 1 else given
  if index is None:
    record = latest_record()
    if record is None and before_1_0 is not None:
      return _replica_index(before_1_0, total, None)
    if record is None:
      return None
    index = record.cluster.replica_index
    if index is None:
      raise ValueError(
        "%s, this process's last server, does not train. A process that has servers of several "
        "tasks gives replica_index=, the number of the worker whose graph this is" % (
          record.cluster.task.name))
  if isinstance(index, bool) or int(index) != index or not 0 <= index < total:
    raise ValueError("replica_index must be 0 to %d, got %r: total_num_replicas is %d" % (
      total - 1, index, total))
  return int(index)
