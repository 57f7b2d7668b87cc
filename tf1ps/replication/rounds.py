"""Synchronous rounds: each round collects a gradient per replica and makes an update of them.

A ps keeps the job's `RoundState` under the lock of a guard (state/guard.py), and a queue of tokens
per replica. A replica that has written its gradient (gradient_exchange.py) takes the lock:

1. If the replica computed the gradient for this round, it is marked as arrived. Otherwise its
   gradient is counted as stale, and the replica continues immediately with the present round.
2. If the round waits for no other replica, this replica finishes the round: it makes the update
   from the mean of the gradients, begins the next round, and puts a token into the queue of each
   replica that arrived.
3. The replica releases the lock, and waits for its token.

The states of a round:

  state       columns     next state
  collecting  (others)    updating: `arrive`, `leave`, `drop` for the last awaited replica;
                          ended: `end`, `finish_pass`
  updating    updating=1  collecting: `clear`, or the update is complete, with round + 1
  ended       ended=1     collecting: `clear`, `join` of the chief or of the first replica of
                          another job

A run that is interrupted while it makes the update leaves a partial update. Each later operation
then fails until the chief restores the variables and clears the state. Replicas that arrive after
the end get the error that says that training has ended for all replicas (round_errors.py).

The states of a replica in a round:

  state      columns             the round       next state
  expected   active=0, left=0    waits for it    computing: `join`; padding: `leave`;
                                                 left: `drop`, `end`
  computing  active=1, arrived=0 waits for it    waiting: `arrive`; padding: `leave`;
                                                 left: `drop`, `end`; expected: `clear`
  waiting    active=1, arrived=1 has its         computing: `update`, `join`, `end`, `finish_pass`;
                                 gradient        left: `drop`; expected: `clear`
  padding    left=1, padding=1   counts it as    computing: `join`; expected: `clear`, `join`
                                 arrived
  left       left=1, padding=0   does not get    computing: `join`; expected: `clear`, `join`;
                                 one; see below  padding: `leave`

A replica whose gradient is late stays in the state computing, with stale + 1. `update` means the
end of the round, which puts the token. The `join` that begins another job puts the replicas that
left into the state expected.

`leave` ends a replica's part by the policy for uneven data (uneven.py): "stop_all" ends training
for all, "pad" puts the replica into the state padding, "shrink" lets the round wait for one
gradient fewer. `drop` puts a lost replica into the state left. Both `leave` and `drop` may finish
the round. `clear` makes all replicas expected.

With "repeat" a replica whose data end stays in the state computing: `finish_pass` sets
went_through=1, and the data begin again. `join` keeps this mark; `clear` and another job remove it.
When all replicas have the mark, the round is ended.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import round_errors
from tf1ps.replication.uneven import UNEVEN_POLICIES, UnevenPolicy
from tf1ps.state import QUEUE_KIND, Guard, Guarded, Label, announce, shared_placement

# Makes the update from an int64 vector [replicas], which has a 1 for each replica whose gradient is
# in the update; returns the global step after the update.
Update = Callable[[tf.Tensor], tf.Tensor]

_TOKEN = [4]  # a token: round, global step, ended, the bits of the mean loss as float64
_IDENTITY = ("container", "shared_name")  # the attributes that identify a queue
_NO_UPDATE = -1  # in place of a token's round: the gradient is in no known update

# The default of a column gives its shape: a value per replica, or a single value.
_PER_REPLICA = np.zeros([1], np.int64)
_SINGLE = np.zeros([], np.int64)


class RoundState(NamedTuple):
  """The state of a job's rounds: int64 tensors, or Python lists and numbers (`view_rounds`)."""

  # Per replica.
  active: tf.Tensor = _PER_REPLICA  # 1: it has joined, and takes part
  left: tf.Tensor = _PER_REPLICA  # 1: it took part, and no longer does
  padding: tf.Tensor = _PER_REPLICA  # 1: it counts as arrived, without a gradient
  arrived: tf.Tensor = _PER_REPLICA  # 1: its gradient for this round has arrived
  computes_for: tf.Tensor = _PER_REPLICA  # the round that it computes a gradient for
  taken: tf.Tensor = _PER_REPLICA  # the number of its gradients that are in an update
  stale: tf.Tensor = _PER_REPLICA  # the number of its gradients that arrived too late
  went_through: tf.Tensor = _PER_REPLICA  # 1: its data have ended at least once ("repeat")
  loss: tf.Tensor = _PER_REPLICA  # the loss of its last gradient's batch, as bits of a float64
  # For all.
  round: tf.Tensor = _SINGLE  # the present round, counted from 0
  ended: tf.Tensor = _SINGLE  # 1: no further update follows
  updating: tf.Tensor = _SINGLE  # 1: an update has begun, and is not complete
  update_step: tf.Tensor = _SINGLE  # the global step after the last update
  joins: tf.Tensor = _SINGLE  # the number of joins


_COLUMNS = [name for name, value in RoundState._field_defaults.items() if value.ndim]
_SINGLES = [name for name, value in RoundState._field_defaults.items() if not value.ndim]


def _size(replicas) -> int:
  return replicas * len(_COLUMNS) + len(_SINGLES)


def _pack(state: RoundState) -> tf.Tensor:
  """Returns the state as the int64 vector that the ps keeps."""
  singles = tf.stack([getattr(state, name) for name in _SINGLES])
  return tf.concat([getattr(state, name) for name in _COLUMNS] + [singles], axis=0)


def _unpack(vector: tf.Tensor, replicas: int) -> RoundState:
  parts = tf.split(vector, [replicas] * len(_COLUMNS) + [len(_SINGLES)])
  return RoundState(**dict(zip(_COLUMNS + _SINGLES, parts[:-1] + tf.unstack(parts[-1]))))


def view_rounds(vector: np.ndarray) -> RoundState:
  """Returns the value of `Rounds.look` as Python numbers and lists of them."""
  columns = vector[:-len(_SINGLES)].reshape([len(_COLUMNS), -1])
  values = columns.tolist() + vector[-len(_SINGLES):].tolist()
  return RoundState(**dict(zip(_COLUMNS + _SINGLES, values)))


class RoundRules(NamedTuple):
  """The rules that all replicas of a job must have in common."""

  replicas: int  # the number of replicas
  aggregate: int  # the number of gradients per update
  on_uneven: str  # the effect of the end of a replica's data

  @property
  def policy(self) -> UnevenPolicy:
    """The policy for uneven data."""
    return UNEVEN_POLICIES[self.on_uneven]


class RoundResult(NamedTuple):
  """The result of a step for its replica."""

  round: tf.Tensor  # int64 scalar: the next round; -1 if it is not known
  global_step: tf.Tensor  # int64 scalar: the global step after the last update
  taken: tf.Tensor  # bool scalar: whether this replica's gradient is in that update
  # Scalar, of the type of the replica's loss: the mean over the gradients in that update, or the
  # replica's own loss if its gradient is not in it. None: no loss was given.
  loss: Optional[tf.Tensor]


class Rounds:
  """The rounds of a synchronous optimizer, in the graph of a replica."""

  def __init__(self, rules: RoundRules, index: int, shared_name: str, device: str):
    """Builds state and queues in the default graph.

    Args:
      rules: the rules, the same in every replica.
      index: the index of this replica.
      shared_name: the name of the state for all replicas.
      device: the task that keeps the state; "" without a cluster.
    """
    self.rules, self.index = rules, index
    self._shared = _SharedState(rules, index, shared_name, device)

  @property
  def container(self) -> str:
    """The container of the state; "" is the default container."""
    return self._shared.container

  # Each of these is an indivisible operation.

  def join(self, make_rows: Callable[[], List[tf.Operation]], may_begin: tf.Tensor,
           is_chief: bool = False) -> tf.Operation:
    """Makes this replica take part from the present round on, and forgets its earlier gradients.

    Args:
      make_rows: builds the operations that make missing rows for the gradients.
      may_begin: an int64 scalar, 0 if a chief clears the state for a new job, else 1. With 1, if
        all replicas have left, the first replica that joins begins another job. A chief that joins
        with 1 always undoes an end of training, because a replica of an earlier job may have died
        before it left.
      is_chief: whether this replica is the chief.
    """
    shared = self._shared

    def function(state):
      is_new = tf.reduce_min(state.left) * may_begin
      begins = may_begin if is_chief else is_new
      is_other_job = tf.maximum(is_new, begins * state.ended)
      with shared.elsewhere():
        made_rows = make_rows()
      with tf.control_dependencies(made_rows + [shared.drain()] + shared.announced):
        return _pack(state._replace(
          active=shared.mark(state.active, 1),
          left=shared.mark(state.left * (1 - is_other_job), 0),
          padding=shared.mark(state.padding * (1 - is_other_job), 0),
          arrived=shared.mark(state.arrived * (1 - is_other_job), 0),
          computes_for=shared.mark(state.computes_for, state.round),
          went_through=state.went_through * (1 - is_other_job),
          ended=state.ended * (1 - begins), joins=state.joins + 1))
    return shared.change(function, may_be_first=True)

  def clear(self) -> tf.Operation:
    """Clears the state, so that all replicas join again; for the chief, after a restore."""
    def function(state):
      zeros = RoundState(*[tf.zeros_like(value) for value in state])
      return _pack(zeros._replace(round=state.round + 1))
    return self._shared.change(function, may_be_partial=True, may_be_first=True)

  def has_partial_update(self) -> tf.Tensor:
    """Returns whether an update was interrupted, a bool scalar."""
    return self._shared.step(lambda: [tf.equal(self._shared.read().updating, 1)])[0]

  def arrive(self, update: Update, after: List[tf.Operation],
             loss: Optional[tf.Tensor] = None) -> RoundResult:
    """Marks this replica's gradient as arrived, and waits for the update that contains it.

    Args:
      update: makes the update.
      after: the operations that write the rows.
      loss: this replica's loss of the same batch; if it has several values, their mean counts.

    Raises:
      tf.errors.OutOfRangeError: when run, `round_errors.is_end_of_replicas`.
      tf.errors.InvalidArgumentError: when run, see `round_errors.explain_round_error`, or
        "container ... was reset".
    """
    shared = self._shared
    own = tf.zeros([], tf.float64) if loss is None else tf.reduce_mean(tf.cast(loss, tf.float64))
    bits = shared.bring(tf.bitcast(own, tf.int64))

    def function():
      state = shared.read()
      with tf.control_dependencies([
          round_errors.check_no_partial_update(state.updating),
          self.check_joined(tf.equal(state.active[self.index], 1)),
          shared.drain()]):
        continues = tf.equal(state.ended, 0)
        is_late = tf.logical_and(continues, state.computes_for[self.index] < state.round)
        has_arrived = tf.logical_and(continues, tf.logical_not(is_late))
      state = state._replace(
        arrived=shared.mark(state.arrived, has_arrived),
        stale=shared.mark(state.stale, state.stale[self.index] + tf.cast(is_late, tf.int64)),
        computes_for=shared.mark(state.computes_for, tf.where_v2(
          is_late, state.round, state.computes_for[self.index])),
        loss=shared.mark(state.loss, bits))
      with tf.control_dependencies([shared.write(self._finish(state, update))]):
        return [tf.identity(has_arrived),
                tf.stack([state.round, state.update_step, state.ended, 0])]

    token, waited = shared.await_token(*shared.step(function, [*after, bits]))
    token = tf.cond(tf.equal(token[2], 1), lambda: round_errors.raise_end(_TOKEN),
                    lambda: tf.identity(token))
    token.set_shape(_TOKEN)
    taken = tf.logical_and(waited, tf.not_equal(token[0], _NO_UPDATE))
    if loss is not None:
      mean = tf.bitcast(token[3], tf.float64)
      loss = tf.cast(tf.where_v2(taken, mean, own), loss.dtype)
    return RoundResult(token[0], token[1], taken, loss)

  def check_joined(self, condition: tf.Tensor) -> tf.Operation:
    """Fails unless `condition` holds, which holds for every replica that has joined."""
    return round_errors.check_joined(condition, self.index)

  def is_late(self) -> tf.Tensor:
    """Returns whether this replica computes for a past round, a bool scalar; takes no lock."""
    state = self._shared.read()
    return state.computes_for[self.index] < state.round

  def leave(self, update: Update) -> tf.Operation:
    """Ends only this replica's part; if that completes the round, makes its `update`.

    If the policy for uneven data ends training for all, run `end` instead.
    """
    if not self.rules.policy.pads:
      return self.drop(tf.constant(self.index, tf.int64), update)
    mark = self._shared.mark
    return self._shared.change(lambda state: self._finish(state._replace(
      active=mark(state.active, 0), left=mark(state.left, 1),
      arrived=mark(state.arrived, 0), padding=mark(state.padding, 1)), update))

  def drop(self, replica: tf.Tensor, update: Update) -> tf.Operation:
    """Ends the part of `replica`, an int64 scalar; if that completes the round, makes `update`."""
    keeps = tf.cast(tf.not_equal(tf.range(self.rules.replicas, dtype=tf.int64), replica), tf.int64)
    return self._shared.change(lambda state: self._finish(state._replace(
      active=state.active * keeps, left=tf.maximum(state.left, 1 - keeps),
      arrived=state.arrived * keeps, padding=state.padding * keeps), update))

  def end(self) -> tf.Operation:
    """Ends training for all: replicas that wait, or arrive later, get an OutOfRangeError."""
    mark = self._shared.mark
    return self._shared.change(lambda state: _pack(self._ended(state)._replace(
      active=mark(state.active, 0), left=mark(state.left, 1))))

  def finish_pass(self) -> tf.Tensor:
    """Notes that this replica's data have ended, and begin again.

    Returns:
      A bool scalar: whether training has ended for all replicas, because the data of all replicas
      have ended.

    Raises:
      tf.errors.InvalidArgumentError: when run, see `round_errors.explain_round_error`.
    """
    shared = self._shared

    def function():
      state = shared.read()
      with tf.control_dependencies([
          round_errors.check_no_partial_update(state.updating),
          self.check_joined(tf.equal(state.active[self.index], 1))]):
        state = state._replace(went_through=shared.mark(state.went_through, 1))
      # Packed outside the branches: in TensorFlow 2 each branch is its own graph.
      vector = _pack(state)
      is_last = tf.equal(tf.reduce_min(state.went_through), 1)
      changed = tf.cond(
        is_last, lambda: _pack(self._ended(shared.unpack(tf.identity(vector)))),
        lambda: tf.identity(vector))
      changed.set_shape(vector.shape)
      with tf.control_dependencies([shared.write(changed)]):
        return [tf.equal(shared.unpack(changed).ended, 1)]

    return shared.step(function, may_be_first=False)[0]

  def _ended(self, state: RoundState) -> RoundState:
    """Returns the state at the end of training; waiting replicas get a token that says so."""
    tokens = self._shared.put_tokens(state.arrived, [state.round, state.update_step, 1, 0])
    with tf.control_dependencies(tokens):
      arrived = tf.identity(state.arrived)
    return state._replace(ended=tf.ones_like(state.ended), arrived=tf.zeros_like(arrived),
                          stale=state.stale + arrived)

  def resend(self) -> tf.Operation:
    """Puts a token for this replica if it has not arrived and has no token.

    The token frees a replica that waits although its token was lost or its gradient was forgotten.
    A replica that does not wait removes the token when it arrives. The operation takes no token out
    of the queue, because the replica may be about to take that token.
    """
    shared = self._shared

    def function(state):
      lacks = tf.cast(tf.equal(shared.tokens(), 0), tf.int64)
      waits = shared.mark(tf.zeros_like(state.arrived), (1 - state.arrived[self.index]) * lacks)
      token = [tf.constant(_NO_UPDATE, tf.int64), state.update_step, state.ended, 0]
      with tf.control_dependencies(shared.put_tokens(waits, token)):
        return _pack(state)
    return shared.change(function)

  def look(self) -> tf.Tensor:
    """Returns the present state, for `view_rounds`; takes no lock."""
    return self._shared.read_vector()

  # The end of a round.

  def _finish(self, state: RoundState, update: Update) -> tf.Tensor:
    """Returns the packed state; makes the update and begins the next round if this one is full."""
    shared, vector = self._shared, _pack(state)

    def finish():
      state = shared.unpack(tf.identity(vector))
      with tf.control_dependencies([shared.write(_pack(state._replace(updating=1)))]):
        arrived = tf.identity(state.arrived)
      with tf.control_dependencies([arrived]), shared.elsewhere():
        step = tf.cast(update(arrived), tf.int64)
      following = state.round + 1
      tokens = shared.put_tokens(arrived, [following, step, 0, _mean_loss(state)])
      with tf.control_dependencies(tokens):
        return _pack(state._replace(
          round=following, computes_for=tf.where_v2(
            tf.equal(arrived, 1), following, state.computes_for),
          taken=state.taken + arrived, arrived=tf.zeros_like(arrived), updating=0,
          update_step=step))

    finished = tf.cond(self._is_complete(state), finish, lambda: tf.identity(vector))
    finished.set_shape(vector.shape)
    return finished

  def _is_complete(self, state) -> tf.Tensor:
    """Returns whether the round waits for no replica."""
    awaited = tf.constant(self.rules.aggregate, tf.int64)
    if self.rules.policy.shrinks:
      awaited = tf.minimum(awaited, self.rules.replicas - tf.reduce_sum(state.left))
    counted = tf.reduce_sum(tf.maximum(state.arrived, state.padding))
    is_complete = tf.logical_and(counted >= awaited, tf.reduce_sum(state.arrived) > 0)
    return tf.logical_and(is_complete, tf.equal(state.ended, 0))


def _mean_loss(state) -> tf.Tensor:
  """Returns the mean loss of the replicas that arrived, as the bits of a float64."""
  losses = tf.bitcast(state.loss, tf.float64)
  counted = tf.where_v2(tf.equal(state.arrived, 1), losses, tf.zeros_like(losses))
  count = tf.cast(tf.reduce_sum(state.arrived), tf.float64)
  return tf.bitcast(tf.reduce_sum(counted) / count, tf.int64)


class _SharedState(Guarded):
  """The state and the queues of tokens on their task, in the graph of a replica.

  The state is a small variable in the job's container; before the first write it is all zeros.

  Attributes:
    announced: operations that announce the queues to resets; run them early.
  """

  def __init__(self, rules: RoundRules, index: int, shared_name: str, device: str):
    self._replicas, self._index = rules.replicas, index
    name = "tf1ps.rounds:%s" % shared_name
    names = ["%s/%d" % (name, i) for i in range(rules.replicas)]
    self._shape = [_size(rules.replicas)]
    with tf.control_dependencies(None):
      with shared_placement(name, device):
        self._handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=self._shape, shared_name=name)
        self._queues = [tf.raw_ops.FIFOQueueV2(
          component_types=[tf.int64], shapes=[_TOKEN], shared_name=queue_name)
          for queue_name in names]
      self._check_first(shared_name)
      self._guard = Guard(self._handle.op, Label.of(
        self._handle.op, "rounds", name, dict(rules._asdict())))
      # A reset then closes the queues, which frees a waiting replica, before it removes the queues.
      self.announced = [
        announce(queue.op, Label.of(queue.op, QUEUE_KIND, queue_name, dict(kind="FIFOQueue")))
        for queue, queue_name in zip(self._queues, names)]

  def _check_first(self, shared_name) -> None:
    """Refuses a second optimizer for the same replica of the same rounds."""
    queue = self._queues[self._index].op
    identity = [queue.get_attr(key) for key in _IDENTITY]
    for op in queue.graph.get_operations():
      # A replica's graph has the queues of all replicas, but reads the size of only its own queue.
      if op.type == queue.type and op is not queue and [
          op.get_attr(key) for key in _IDENTITY] == identity and any(
            consumer.type == "QueueSizeV2" for consumer in op.outputs[0].consumers()):
        raise ValueError(
          "replica %d has a SyncReplicasOptimizer %r of the same variables already. Give the "
          "second one another name=" % (self._index, shared_name.rpartition(":")[0]))

  def read_vector(self) -> tf.Tensor:
    """The packed state; takes no lock."""
    with tf.get_default_graph().colocate_with(self._handle.op):
      vector = tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=self._handle),
        lambda: tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64),
        lambda: tf.zeros(self._shape, tf.int64))
      vector.set_shape(self._shape)
      return vector

  def read(self) -> RoundState:
    """The state; takes no lock."""
    with tf.get_default_graph().colocate_with(self._handle.op):
      return self.unpack(self.read_vector())

  def unpack(self, vector: tf.Tensor) -> RoundState:
    """Returns the state in a vector."""
    return _unpack(vector, self._replicas)

  def write(self, vector: tf.Tensor) -> tf.Operation:
    """Writes a packed state; call it in a step only."""
    return tf.raw_ops.AssignVariableOp(resource=self._handle, value=vector)

  def step(self, function, inputs=(), may_be_first=True) -> list:
    """Builds an atomic step on the state; the arguments are those of `Guard.step`."""
    return self._guard.step(function, inputs, may_be_first)

  def change(self, function: Callable[[RoundState], tf.Tensor],
             may_be_partial: bool = False, may_be_first: bool = False) -> tf.Operation:
    """Builds an atomic step that writes the packed state of function(state).

    `may_be_partial` allows the step after a partial update, and `may_be_first` before the session
    has joined.
    """
    def step():
      state = self.read()
      with tf.control_dependencies(
          [] if may_be_partial else [round_errors.check_no_partial_update(state.updating)]):
        written = self.write(function(state))
      with tf.control_dependencies([written]):
        return [tf.constant(True)]

    return self.step(step, may_be_first=may_be_first)[0].op

  def mark(self, column: tf.Tensor, value) -> tf.Tensor:
    """Returns a column in which this replica has the value `value`."""
    mine = tf.constant([i == self._index for i in range(self._replicas)])
    return tf.where_v2(mine, tf.cast(value, tf.int64), column)

  @contextlib.contextmanager
  def elsewhere(self):
    """Returns a context in a step, for operations away from the state's device."""
    # In a cond of TensorFlow 2 the default graph is the branch; slots are made outside the branch.
    with self._handle.graph.colocate_with(None, True), \
        tf.get_default_graph().colocate_with(None, True):
      yield

  def bring(self, value: tf.Tensor) -> tf.Tensor:
    """Returns a copy of a value on the state's device, as the input of a step."""
    with tf.get_default_graph().colocate_with(self._handle.op):
      return tf.identity(value)

  def put_tokens(self, to: tf.Tensor, token: list) -> List[tf.Operation]:
    """Puts a token into the queue of each replica with a 1 in `to`."""
    token = tf.expand_dims(tf.stack(token), 0)
    multiples = tf.unstack(tf.stack([to, tf.ones_like(to)], axis=1), self._replicas)
    return [tf.raw_ops.QueueEnqueueManyV2(handle=queue, components=[tf.tile(token, times)])
            for queue, times in zip(self._queues, multiples)]

  def tokens(self) -> tf.Tensor:
    """The number of tokens in this replica's queue, an int32 scalar."""
    return tf.raw_ops.QueueSizeV2(handle=self._queues[self._index])

  def drain(self) -> tf.Operation:
    """Removes the tokens in this replica's queue; does not block in a step before the wait."""
    handle = self._queues[self._index]
    return tf.raw_ops.QueueDequeueManyV2(
      handle=handle, n=self.tokens(), component_types=[tf.int64])[0].op

  def await_token(self, waits: tf.Tensor, instead: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Waits for this replica's token if the bool scalar `waits` is true; else returns `instead`.

    All operations run on the state's device, because a condition on another task would travel there
    and back. The result travels in one message. Returns the token and `waits`, on the replica's
    task.
    """
    def take():
      return tf.raw_ops.QueueDequeueV2(
        handle=self._queues[self._index], component_types=[tf.int64])[0]

    with tf.get_default_graph().colocate_with(self._handle.op):
      token = tf.cond(waits, take, lambda: tf.identity(instead))
      token.set_shape(_TOKEN)
      both = tf.concat([token, tf.cast(waits, tf.int64)[tf.newaxis]], 0)
    both = tf.identity(both)
    return both[:_TOKEN[0]], tf.equal(both[_TOKEN[0]], 1)
