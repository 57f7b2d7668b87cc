"""Runs several training steps in one session run: copies of the step, one after the other.

A run of a small model takes as long as its messages. With k copies of the finished step in the
graph, the client asks once for k steps. Each step draws its own batch and reads the variables that
the previous step has updated. For each copy after the first, in this order:

1. On each task, the operations of the copy that touch a variable or another handle wait for all
   operations of the previous step on that task. They wait through a no-op on that task, so the
   order needs no message. The task of the global step has the increment of the global step, which
   waits for the updates on all tasks. The read of a large variable waits only for the operations
   of the previous step on this variable, so its value travels while other gradients still come.
2. One value from each task arrives on the worker. The previous step is then done, and the worker
   notes how many steps this run has finished, and the number of their examples.
3. The copy draws its batch. If the data end during a run, the note says on which examples the run
   has trained: all updates of the earlier steps are made, and no later update has begun. (An update
   that waits for no gradient may be made, as in a single step. An example is stock Adam, which
   decays the slots of a sparse gradient.)

`StepChain` finds which operations wait for which. `Unrolled` has the steps, their losses and the
notes; its method `run` runs the steps and raises `EndOfDataError` if the data end.
"""

from __future__ import annotations

import collections
import itertools
import math
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.graph import (
  Subgraph,
  SubgraphCopy,
  consumers_of,
  cpu_of,
  depths,
  descendants,
  in_order,
  is_enter,
  is_handle,
  is_handle_type,
  make_gate,
  needed_ops,
  predecessors_in_order,
  task_of_device,
)
from tf1ps.transfer import prefetch

_EARLY_BYTES = 1 << 19  # of a value that travels alone; smaller values travel together
_READS = frozenset(["ReadVariableOp", "Identity"])  # an Identity reads a reference
# Handles, and the types for which TensorFlow 1.15 has no DeepCopy.
_NOT_COPIED = frozenset([tf.resource, tf.variant, tf.uint32, tf.uint64])


class Done(NamedTuple):
  """The work of a run during which the data ended."""

  steps: int
  examples: int  # of these steps; 0 if no batch size was given
  late: int  # examples of gradients that were too late for an update


class EndOfDataError(Error, tf.errors.OutOfRangeError):
  """The data ended during a run of several steps.

  Attributes:
    done: the `Done` of the run.
  """

  def __init__(self, error: tf.errors.OutOfRangeError, done: Done):
    super().__init__(error.node_def, error.op, error.message)
    self.done = done


def may_gain_in_long_runs(step: Any, worker: str, reads_early: bool = True) -> bool:
  """Whether runs of several steps may save a part of each step, however long a step is.

  This holds if values of large variables travel beside the gradients of others, and if the worker
  waits for rows that a ps looks up for the batch.

  Args:
    step: a structure of the step's tensors and operations; some may be None.
    worker: the worker's device.
    reads_early: as for `Unrolled`.
  """
  chain = StepChain(step, worker, reads_early=reads_early)
  return bool(chain.early) or chain.looks_up_batch()


class _EarlyRead(NamedTuple):
  """A read that waits for a part of the previous step."""

  op: tf.Operation
  task: str
  touching: List[tf.Operation]  # the operations of a step on the variable


class StepChain:
  """A step, and the order between its copies.

  These operations of the step matter, by task:

  - gated: operations with a handle as an input, such as reads, gathers and updates of variables,
    tables and queues. If a handle enters a branch or a loop, the gated operation is the operation
    that passes the handle in. On the worker, operations with a state whose order is visible are
    also gated: they draw the batch, use variables, call Python, or draw random numbers. The gated
    operations of a copy wait for the previous step.
  - last: operations that no operation of the step on this task waits for. An operation in a branch
    may not run, so the operations outside of the branch that need it replace it.
  - arriving: on each task except the worker, the smallest value that travels to the worker and
    does not depend on the batch. On a task without such a value, the no-op of the task sends a
    signal.
  - `early`: reads of large variables, except for arriving values. They wait for the operations of
    the previous step on their variable.
  """

  def __init__(self, step: Any, worker: str,
               note: Callable[[List[dict]], tf.Operation] = lambda before: tf.no_op(),
               reads_early: bool = True):
    """Analyzes the step, a structure of tensors and operations; some may be None.

    `note` is called with the steps before a copy. It builds an operation on the worker that notes
    that these steps are done. Only `build` calls `note`.
    """
    self._step, self._note = step, note
    self._place, self._worker = worker, task_of_device(worker)
    self._subgraph = Subgraph(step)
    ordered = in_order(self._subgraph.ops)
    self._tasks = _tasks_of(ordered)
    self._depths = depths(ordered)
    self._consumers = consumers_of(self._subgraph.ops, predecessors_in_order)
    self._gated = self._find_gated()
    self._last = self._find_last()
    self._arriving = self._find_arriving()
    # The part of the step that is copied first, because the remainder of the step waits for it.
    self._first = self._remainder = None
    if self._arriving:
      self._first = Subgraph(list(self._arriving.values()))
      self._remainder = Subgraph(step, without=self._first.ops)
    self.early = self._find_early() if reads_early else []

  def build(self, steps: int) -> List[dict]:
    """Builds the copies in the default graph; returns the tensors of all steps."""
    built, before = [self._step], None
    for number in range(1, steps):
      before = self._copy(number, before, built)
      built.append(before.of(self._step))
    return built

  def check_draws(self) -> None:
    """Raises ValueError if the batch is fed, because all copies would then have the same batch.

    A scalar, such as a dropout rate, and a placeholder with a constant as its default may be fed.
    """
    fed = {tensor.op.name for op in self.ops for tensor in op.inputs if _may_be_batch(tensor)}
    if fed:
      raise ValueError(
        "the batch is fed to %s, so all batches of a run would be the same. Draw batches from a "
        "tf.data iterator or a queue, or use one batch per run" % ", ".join(sorted(fed)))

  @property
  def ops(self) -> List[tf.Operation]:
    """The operations that are copied for each step."""
    return self._subgraph.ops

  def drawn(self) -> Tuple[List[tf.Operation], Set[tf.Operation]]:
    """Returns the operations that draw a batch, and a set of these and all operations below."""
    drawing = self._gated.get(self._worker, [])
    return drawing, descendants(drawing, self._consumers)

  def looks_up_batch(self) -> bool:
    """Whether the worker uses a value that another task computes from what the worker draws."""
    consumers = consumers_of(self.ops, lambda op: [tensor.op for tensor in op.inputs])
    return any(not self._is_of_worker(op) and any(map(self._is_of_worker, consumers[op]))
               for op in descendants(self._gated.get(self._worker, ()), consumers))

  def _copy(self, number, before, built) -> SubgraphCopy:
    """Makes a copy that waits for the copy `before`; None is the step itself."""
    def of(op):
      return op if before is None else before.ops[op.name]

    gates = {}
    for task in self._gated:
      if task != self._worker:
        with tf.device(task), tf.control_dependencies([of(op) for op in self._last[task]]):
          gates[task] = make_gate("before_%d" % number)
    name = "step_%d" % number
    waits: Dict[str, Sequence[tf.Operation]] = {
      op.name: [gates[task]] for task in gates for op in self._gated[task]}
    for read in self.early:
      with tf.device(read.task), tf.control_dependencies([of(op) for op in read.touching]):
        waits[read.op.name] = [make_gate("read_before_%d" % number)]
    first = None
    if self._first is not None:
      first = self._first.copy(name, number, waits=waits)
    with tf.device(self._place):
      arrived = [tf.identity(gates[task] if first is None or task not in self._arriving
                             else first.of(self._arriving[task]), name="arrived")
                 for task in sorted(gates)]
      with tf.control_dependencies(arrived + [of(op) for op in self._last[self._worker]]):
        noted = self._note(built)
        with tf.control_dependencies([noted]):
          begun = make_gate("begun_%d" % number)
    waits.update({op.name: [begun] for op in self._gated.get(self._worker, ())})
    return (self._remainder or self._subgraph).copy(name, number, replace=first, waits=waits)

  def _find_gated(self) -> Dict[str, List[tf.Operation]]:
    """By task, the operations that wait for the previous step."""
    gated = collections.defaultdict(list)
    loops_have_state = any(
      self._depths[op.name].loops and op.op_def.is_stateful and self._is_of_worker(op)
      for op in self._subgraph.ops)
    for op in self._subgraph.ops:
      is_touching = any(is_handle(tensor.op) for tensor in op.inputs)
      is_drawing = self._is_of_worker(op) and (
        op.op_def.is_stateful or loops_have_state and is_enter(op))
      # A control edge may lead to the Enter of a loop, which `depths` counts as inside.
      loops = self._depths[op.name].loops - (1 if is_enter(op) else 0)
      if (is_touching or is_drawing) and loops == 0:
        gated[self._tasks[op.name]].append(op)
    return dict(gated)

  def _is_of_worker(self, op):
    return self._tasks[op.name] == self._worker

  def _find_last(self) -> Dict[str, List[tf.Operation]]:
    """By task, the operations after which the step is over on that task."""
    last: Dict[str, Dict[str, tf.Operation]] = collections.defaultdict(dict)
    for op in self._subgraph.ops:
      task = self._tasks[op.name]
      if self._depths[op.name].branches:
        for other in self._behind_branch(op):
          last[task][other.name] = other
      elif not any(self._tasks[consumer.name] == task and not self._depths[consumer.name].branches
                   for consumer in self._consumers[op]):
        last[task][op.name] = op
    return collections.defaultdict(list, {task: list(ops.values()) for task, ops in last.items()})

  def _behind_branch(self, op) -> List[tf.Operation]:
    """The operations outside of a branch that need `op`, if `op` is last in the branch."""
    task = self._tasks[op.name]
    if any(self._tasks[consumer.name] == task for consumer in self._consumers[op]):
      return []
    behind, seen, waiting = [], set(), [op]
    while waiting:
      for consumer in self._consumers[waiting.pop()]:
        if consumer.name in seen:
          continue
        seen.add(consumer.name)
        if self._depths[consumer.name].branches:
          waiting.append(consumer)
        else:
          behind.append(consumer)
    return behind

  def _find_early(self) -> List[_EarlyRead]:
    """The reads of large variables that need not wait for the whole previous step."""
    arriving = set() if self._first is None else {op.name for op in self._first.ops}
    touching = collections.defaultdict(list)
    for op in self._subgraph.ops:
      for name in {_state_of(tensor.op) for tensor in op.inputs if is_handle(tensor.op)}:
        touching[name].append(op)
    early = []
    for task, ops in self._gated.items():
      for op in ops if task != self._worker else ():
        if op.type not in _READS or op.name in arriving or _bytes(op.outputs[0]) < _EARLY_BYTES:
          continue
        others = touching[_state_of(op.inputs[0].op)]
        if all(map(self._ends_itself, others)) and any(
            other.type not in _READS for other in others):  # else nothing changes the variable
          early.append(_EarlyRead(op, task, others))
    return early

  def _ends_itself(self, op) -> bool:
    """Whether an operation on a variable always runs, and passes the variable to no other."""
    depth = self._depths[op.name]
    return not depth.loops and not depth.branches and not any(
      tensor.op.name == op.name and is_handle_type(tensor)
      for consumer in self._consumers[op] for tensor in consumer.inputs)

  def _find_arriving(self) -> Dict[str, tf.Tensor]:
    """By task, a small value that travels to the worker and does not depend on the batch."""
    below = collections.defaultdict(set, {
      task: descendants(ops, self._consumers) for task, ops in self._gated.items()})
    arriving: Dict[str, tf.Tensor] = {}
    for op in self._subgraph.ops:
      if op in below[self._worker] or self._is_of_worker(op) or self._depths[op.name].branches:
        continue
      task = self._tasks[op.name]
      if op not in below[task]:
        continue
      for consumer in self._consumers[op]:
        if self._is_of_worker(consumer):
          tensor = next((t for t in consumer.inputs if t.op.name == op.name), None)
          if tensor is not None:
            if task not in arriving or _bytes(tensor) < _bytes(arriving[task]):
              arriving[task] = tensor
            break
    return arriving


def _state_of(handle) -> Any:
  """The name of a handle's state; several operations may stand for one variable."""
  return handle.node_def.attr["shared_name"].s or handle.name


def _bytes(tensor) -> float:
  """The bytes of a tensor; infinite if its shape is not known."""
  if not tensor.shape.is_fully_defined():
    return math.inf
  return tensor.shape.num_elements() * tensor.dtype.base_dtype.size


def _may_be_batch(tensor) -> bool:
  """Whether a tensor is a placeholder that all copies share, and that may contain examples."""
  if tensor.shape.ndims == 0 or not tensor.op.type.startswith("Placeholder"):
    return False
  return not any(default.op.type == "Const" for default in tensor.op.inputs)


def _tasks_of(ops) -> Dict[str, str]:
  """The task of each operation by its name: an operation on a handle runs on the handle's task."""
  tasks = {}
  for op in ops:
    handles = [tensor.op for tensor in op.inputs if is_handle_type(tensor)]
    tasks[op.name] = task_of_device(op.device)
    if handles:  # the operation's own device does not matter, for example for a variable's read
      tasks[op.name] = tasks.get(handles[0].name, task_of_device(handles[0].device))
  return tasks


class Unrolled:
  """Several training steps, one after the other in one run.

  Attributes:
    steps: the number of steps.
    train_ops: the training operation of each step.
    losses: the losses [steps], or None.
    batch_sizes: the numbers of examples, int64 [steps], or None.
    taken: whether each update was made, bool [steps], or None.
    fetches: the structure of further fetches of each step.
  """

  def __init__(self, train_op: tf.Operation, steps: int, loss: Optional[tf.Tensor] = None,
               batch_size: Optional[tf.Tensor] = None, taken: Optional[tf.Tensor] = None,
               fetches: Any = None, worker: Optional[str] = None, reads_early: bool = True):
    """Builds the copies in the graph of the step. The step itself is the first copy.

    Args:
      train_op: the finished training step, with the increment of the global step.
      steps: the number of steps per run, 1 or more.
      loss: the loss of the batch, a scalar.
      batch_size: the examples of the batch, an int scalar tensor such as `tf.shape(x)[0]`, or a
        number; None: examples are not counted.
      taken: whether the update was made, a bool scalar; None: it is always made.
      fetches: further tensors and operations of the step, in a structure of lists and dicts.
      worker: the device of the worker, such as "/job:worker/task:0"; None: the device of the loss.
      reads_early: whether the value of a large variable may be read before the updates of others
        are made.

    Raises:
      ValueError: if `steps` is below 1, neither a loss nor a worker is given, the batch is fed, or
        the step prefetches.
    """
    if isinstance(steps, bool) or int(steps) != steps or steps < 1:
      raise ValueError("steps must be a number, 1 or more, got %r" % (steps,))
    if worker is None:
      if loss is None:
        raise ValueError("give the loss or the worker's device: batches are drawn on the worker")
      worker = loss.device
    if steps > 1 and prefetch.is_in(needed_ops([train_op])):
      raise ValueError("Prefetch fetches the values of one step ahead, so all steps of a run would "
                       "compute on the same old values. Use Prefetch or several steps, not both")
    self.steps = int(steps)
    self._worker: str = worker
    self._run_numbers = itertools.count(1)
    with train_op.graph.as_default(), tf.device(None), tf.control_dependencies(None), \
        tf.name_scope("unrolled"):
      self._build_notes()
      if batch_size is not None:
        with tf.device(self._worker):
          batch_size = tf.convert_to_tensor(batch_size)
      if self.steps > 1:
        fetches = tf.nest.map_structure(self._own_buffer, fetches)
      tensors = dict(train_op=train_op, loss=loss, size=batch_size, taken=taken, fetches=fetches)
      chain = StepChain(tensors, self._worker, self._note, reads_early)
      if self.steps > 1:
        chain.check_draws()
      each = chain.build(self.steps)
      self.train_ops: List[tf.Operation] = [step["train_op"] for step in each]
      self.fetches = [step["fetches"] for step in each]
      with tf.device(self._worker):
        self.losses = None if loss is None else tf.stack([step["loss"] for step in each])
        self.batch_sizes = None if batch_size is None else tf.stack(
          [tf.cast(step["size"], tf.int64) for step in each])
        self.taken = None if taken is None else tf.stack([step["taken"] for step in each])

  def feed(self, slot: int = 0) -> Dict[tf.Tensor, Any]:
    """Returns the feeds of one run, which `done` needs to find the run's notes.

    Each thread that makes runs at the same time has its own `slot`.
    """
    return {self._slot: slot, self._number: next(self._run_numbers)}

  def done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]) -> Done:
    """Returns the work of a run, with these feeds, during which the data ended."""
    number, steps, examples, late = session.run(self._read, {self._slot: feed[self._slot]})
    if number != feed[self._number]:
      return Done(0, 0, 0)
    return Done(int(steps), int(examples), int(late))

  def run(self, session: tf.Session, fetches: Any = None) -> Any:
    """Makes the steps in one run, for a hand-written loop; returns the values of the fetches.

    Without fetches it returns None. Raises EndOfDataError if the data end; its attribute `done` has
    the steps that the run has made.
    """
    feed = self.feed()
    try:
      return session.run([self.train_ops, fetches if fetches is not None else []], feed)[1]
    except tf.errors.OutOfRangeError as error:
      raise EndOfDataError(error, self.done(session, feed)) from None

  def _own_buffer(self, fetch):
    """Copies a fetch on another task, because it may share the buffer of a variable.

    A later step of the run changes the variable, and the fetch may travel after that change.
    """
    if (not isinstance(fetch, tf.Tensor) or fetch.dtype.base_dtype in _NOT_COPIED
        or task_of_device(fetch.device) == task_of_device(self._worker)):
      return fetch
    with tf.device(fetch.device):
      return tf.raw_ops.DeepCopy(x=fetch)

  def _build_notes(self):
    with tf.device(self._worker):
      self._slot = tf.placeholder_with_default(tf.constant(0, tf.int64), [], "slot")
      self._number = tf.placeholder_with_default(tf.constant(0, tf.int64), [], "run")
      # A table needs no initialization. Its name is unique on this worker.
      with tf.device(cpu_of(task_of_device(self._worker))):
        self._notes = tf.raw_ops.MutableHashTableOfTensorsV2(
          key_dtype=tf.int64, value_dtype=tf.int64, value_shape=[4],
          shared_name="tf1ps.steps_of_run:" + uuid.uuid4().hex)
      self._read = tf.raw_ops.LookupTableFindV2(
        table_handle=self._notes, keys=self._slot, default_value=tf.zeros([4], tf.int64))

  def _note(self, before: List[dict]) -> tf.Operation:
    """Builds the operation that notes that some steps are done."""
    zero = tf.zeros([], tf.int64)
    examples = late = zero
    for step in before:
      if step["size"] is None:
        continue
      size = tf.cast(step["size"], tf.int64)
      taken = tf.constant(True) if step["taken"] is None else step["taken"]
      examples += tf.where_v2(taken, size, zero)
      late += tf.where_v2(taken, zero, size)
    return tf.raw_ops.LookupTableInsertV2(
      table_handle=self._notes, keys=self._slot,
      values=tf.stack([self._number, tf.constant(len(before), tf.int64), examples, late]))
