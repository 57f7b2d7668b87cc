"""Rules of queues and accumulators: whether they are shared, endless waits, and lost elements."""

from __future__ import annotations

import ast

from tf1ps.doctor import device_scopes, jobs, texts
from tf1ps.doctor.findings import TRAP, Rule

# {queue: the position of its shared_name}
_SHARED_NAME = {"tf.FIFOQueue": 4, "tf.PaddingFIFOQueue": 4, "tf.RandomShuffleQueue": 6,
                "tf.PriorityQueue": 4}
_QUEUES = tuple(_SHARED_NAME)
_LOSING = ("tf.FIFOQueue", "tf.PaddingFIFOQueue", "tf.RandomShuffleQueue")
_TAKE = ("dequeue", "dequeue_many", "dequeue_up_to")
_LIMITS = ("operation_timeout_in_ms", "timeout_in_ms")
_ACCUMULATORS = ("tf.ConditionalAccumulator", "tf.SparseConditionalAccumulator")
_STAGING = ("tf.contrib.staging.StagingArea", "tensorflow.python.ops.data_flow_ops.StagingArea",
            "tf.python.ops.data_flow_ops.StagingArea")


def _shared(program, call):
  return program.argument(call, "shared_name", _SHARED_NAME[program.name_of(call.func)])


def _scopes_of(program, calls):
  """Yields the calls with the scopes that name their job."""
  ways_of = device_scopes.Ways(program)
  for call in calls:
    yield call, [way.job_scope() for way in ways_of.to(call)]


def _not_shared(program):
  """Yields queues with a shared name that are not shared, because each worker has its own queue."""
  if not jobs.task_servers(program):
    return
  named = [call for call in program.calls(*_QUEUES) if _shared(program, call) is not None]
  for call, scopes in _scopes_of(program, named):
    if any(scope is None or scope.kind == device_scopes.SETTER for scope in scopes):
      yield call


def _private(program):
  """Yields queues on a ps without a shared name, in a program with several clients."""
  if not jobs.task_servers(program) or not program.calls(jobs.SETTER):
    return
  unnamed = [call for call in program.calls(*_QUEUES)
             if _shared(program, call) is None and not program.may_have_more(call)]
  for call, scopes in _scopes_of(program, unnamed):
    if any(scope and scope.kind == device_scopes.DEVICE and "/job:ps" in scope.text
           for scope in scopes):
      yield call


def _endless_waits(program):
  """Yields calls that take elements from a shared queue, in programs without any limit."""
  if jobs.has_stock_server(program) and not texts.mentions(program, *_LIMITS):
    for call in _takes(program, _QUEUES):
      if _shared(program, _queue_of(program, call)) is not None:
        yield call


def _leaves_at_once(program):
  """Yields calls by which a ps waits for the end, if the ps does not stay after the end."""
  if not jobs.has_stock_server(program) or any(
      True for _ in program.method_calls("tf.train.Server", "join")):
    return
  ways_of = device_scopes.Ways(program)
  for call in _takes(program, _QUEUES, "dequeue"):
    queue = _queue_of(program, call)
    scopes = [way.job_scope() for way in ways_of.to(queue)]
    if _shared(program, queue) is None or not any(
        scope and "/job:ps" in scope.text for scope in scopes):
      continue
    function = jobs.function_of(program, call)
    stays = any(program.name_of(node) == "time.sleep" for node in ast.walk(function)
                if isinstance(node, (ast.Name, ast.Attribute)))
    if not stays and jobs.is_on_ps(program, call, function):
      yield call


def _takes(program, queues, *methods):
  for call in program.attribute_calls(*(methods or _TAKE)):
    queue = _queue_of(program, call)
    if queue is not None and program.name_of(queue.func) in queues:
      yield call


def _queue_of(program, call):
  """Returns the call that made the object of a method; a function of the program may return it."""
  maker = program.call_of(call.func.value)
  if maker is None or program.name_of(maker.func) is not None:
    return maker
  for bound in program.bindings(maker.func):
    if isinstance(bound.statement, jobs.FUNCTIONS):
      returns = [node.value for node in ast.walk(bound.statement) if isinstance(node, ast.Return)]
      return program.call_of(returns[0]) if len(returns) == 1 else None
  return None


def _lost_elements(program):
  """Yields calls that take elements, or put several, in runs with a time limit."""
  if not texts.mentions(program, *_LIMITS):
    return
  yield from _limited(program, _takes(program, _LOSING, *_TAKE, "enqueue_many"))


def _limited(program, calls):
  """Yields the operations among `calls` that run with a time limit."""
  fetches = [_made_of(program, fetched) for fetched in _limited_fetches(program)]
  is_always = _has_limited_session(program)
  for call in calls:
    if is_always or any(call in nodes for nodes in fetches):
      yield call


def _has_limited_session(program):
  """Whether a session's config has a time limit for all runs."""
  configs = [program.call_of(program.argument(call, "config", 2))
             for call in program.calls("tf.Session", "tf.InteractiveSession")]
  configs += [program.call_of(opening.config) for opening in jobs.sessions(program)]
  return any(program.argument(config, _LIMITS[0]) is not None for config in configs
             if config is not None)


def _limited_fetches(program):
  """Yields the fetches of runs that have their own time limit."""
  for call in program.attribute_calls("run"):
    options = program.call_of(program.argument(call, "options", 2))
    if call.args and options is not None and program.argument(options, _LIMITS[1], 1) is not None:
      yield call.args[0]


def _made_of(program, fetches):
  """Returns the nodes of an expression, and of the expressions that its names are bound to."""
  nodes = set(ast.walk(fetches))
  for node in list(nodes):
    for bound in program.bindings(node):
      if bound.value is not None:
        nodes |= set(ast.walk(bound.value))
  return nodes


def _up_to(program):
  """Yields `dequeue_up_to` in programs that close no queue."""
  if not texts.mentions(program, "close", "string_input_producer", "QueueRunner"):
    yield from program.method_calls(_QUEUES, "dequeue_up_to")


def _capacities(program):
  for call in program.calls(*_QUEUES):
    capacity = program.value_of(program.argument(call, "capacity", 0), flags=True)
    if isinstance(capacity, int) and capacity == 0:  # below 0 a queue has no limit
      yield call, "TensorFlow accepts the capacity 0, and nothing can be put in"
  for name, position, of_capacity in (("tf.RandomShuffleQueue", 1, 0),
                                      ("tf.train.shuffle_batch", 3, 2),
                                      ("tf.train.shuffle_batch_join", 3, 2)):
    for call in program.calls(name):
      capacity = program.value_of(program.argument(call, "capacity", of_capacity), flags=True)
      kept = program.value_of(program.argument(call, "min_after_dequeue", position), flags=True)
      if isinstance(capacity, int) and isinstance(kept, int) and kept >= capacity >= 0:
        yield call, "min_after_dequeue is %d and the capacity %d: it fails at the first run" % (
          kept, capacity)


def _ghosts(program):
  if texts.mentions(program, *_LIMITS):
    yield from _limited(program, program.method_calls(_STAGING, "get", "put"))


RULES = (
  Rule("shared-queue-not-shared", TRAP,
       "Despite its shared_name, each worker gets its own queue: no device places it on the ps",
       "Build it under tf.device with a task of the ps, or use the queues of tf1ps.",
       "docs/queues.md#where-a-queue-lives", True, _not_shared),
  Rule("private-queue-on-ps", TRAP,
       "Without a shared_name, this queue on the ps is private to its session",
       "Give it a shared_name.",
       "docs/queues.md#where-a-queue-lives", False, _private),
  Rule("dequeue-without-limit", TRAP,
       "If a task has died, this waits forever for its element",
       "Use DoneQueues of tf1ps, or `get` of its queues, with a timeout.",
       "docs/queues.md#done-queues", True, _endless_waits),
  Rule("ps-leaves-at-once", TRAP,
       "A ps that leaves at the last token makes the last worker's enqueue fail, or its close hang",
       "Use DoneQueues of tf1ps, or let the ps stay for two seconds.",
       "docs/queues.md#done-queues", True, _leaves_at_once),
  Rule("timeout-loses-elements", TRAP,
       "When its time limit ends, this loses the elements that it has already taken",
       "Use `get` and `put` of the queues of tf1ps.",
       "docs/queues.md#get-and-put", False, _lost_elements),
  Rule("dequeue-up-to-waits", TRAP,
       "On an open queue dequeue_up_to waits for all elements, as dequeue_many does",
       "Close the queue when no more elements come.",
       "docs/queues.md#closing-reopening-resets", False, _up_to),
  Rule("queue-capacity", TRAP,
       "With this capacity, an enqueue or a dequeue never completes",
       "Give it a capacity above min_after_dequeue.",
       "docs/queues.md#where-a-queue-lives", False, _capacities),
  Rule("accumulator-drops-gradients", TRAP,
       "An accumulator drops a gradient with an older local_step in silence",
       "Use SyncReplicasOptimizer of tf1ps, or compare the steps before.",
       "docs/queues.md#accumulators", False, lambda program: program.method_calls(
         _ACCUMULATORS, "apply_grad", "apply_indexed_slices_grad")),
  Rule("take-grad-averages-all", TRAP,
       "take_grad(n) waits for n gradients without a limit, and averages all that have arrived",
       "Use SyncReplicasOptimizer of tf1ps, or take n gradients from a queue of tf1ps.",
       "docs/queues.md#accumulators", False, lambda program: program.method_calls(
         _ACCUMULATORS, "take_grad", "take_indexed_slices_grad")),
  Rule("sparse-accumulator-mean", TRAP,
       "This divides each row by the number of its own gradients, not of all gradients",
       "Use SyncReplicasOptimizer of tf1ps for the mean over all replicas.",
       "docs/replication.md#how-it-works", False,
       lambda program: program.calls("tf.SparseConditionalAccumulator")),
  Rule("staging-area-ghost", TRAP,
       "After a timeout, a get of this StagingArea stays on the server and takes the next put",
       "Set no time limit in the runs that use it.",
       "docs/transfer.md#prefetch", False, _ghosts),
)
