"""Rules of SyncReplicasOptimizer."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import TRAP, Rule
from tf1ps.doctor.program import UNKNOWN

_HOOK = "make_session_run_hook"


def _tokens(program):
  for call in program.method_calls(jobs.SYNC, "get_init_tokens_op", _HOOK):
    if call.func.attr == _HOOK:
      number = program.argument(call, "num_tokens", 1)
    else:
      number = program.argument(call, "num_tokens", 0)
    if number is None or program.value_of(number) != 0:
      yield call


def _numbers(program, call):
  """Returns the nodes of replicas_to_aggregate and total_num_replicas; None: it is missing."""
  return (program.argument(call, "replicas_to_aggregate", 1),
          program.argument(call, "total_num_replicas", 2))


def _are_equal(program, first, second):
  """Whether two expressions have the same value; None if the source does not show it."""
  values = program.value_of(first), program.value_of(second)
  if UNKNOWN not in values:
    return values[0] == values[1]
  if ast.dump(first) == ast.dump(second):
    return True
  bound = [program.bindings(node) for node in (first, second)]
  inner = [bindings[0].value if len(bindings) == 1 and bindings[0].value is not None else node
           for bindings, node in zip(bound, (first, second))]
  if ast.dump(inner[0]) == ast.dump(inner[1]):
    return True
  return False if _is_less(inner[0], inner[1]) or _is_less(inner[0], second) else None


def _is_less(first, second):
  """Whether the first expression is the second expression minus something."""
  return (isinstance(first, ast.BinOp) and isinstance(first.op, ast.Sub)
          and ast.dump(first.left) == ast.dump(second))


def _late_gradients(program):
  for call in program.calls(jobs.SYNC):
    some, total = _numbers(program, call)
    if some is not None and total is not None and _are_equal(program, some, total) is False:
      yield call


def _uneven_data(program):
  if not _data_end(program):
    return
  for call in program.calls(jobs.SYNC):
    some, total = _numbers(program, call)
    if some is not None and (total is None or _are_equal(program, some, total)):
      yield call


def _data_end(program):
  """Whether a program's input ends by itself."""
  for call in (node for node in program.nodes if isinstance(node, ast.Call)):
    epochs = program.argument(call, "num_epochs")
    if epochs is not None and program.value_of(epochs) is not None:
      return True
    if isinstance(call.func, ast.Attribute) and call.func.attr == "repeat" and (
        call.args or call.keywords):
      count = call.args[0] if call.args else call.keywords[0].value
      if program.value_of(count) not in (None, -1):
        return True
  return any(True for _ in program.uses("tf.errors.OutOfRangeError"))


def _ends_with_chief(program):
  if texts.mentions(program, "get_chief_queue_runner", _HOOK):
    yield from program.calls(jobs.SYNC)


def _local_steps(program):
  if program.calls(jobs.SUPERVISOR) and not texts.mentions(program, "local_step_init_op", _HOOK):
    yield from program.calls(jobs.SYNC)


def _nobody_applies(program):
  if not any(True for _ in jobs.sessions(program)) or texts.mentions(program, _HOOK):
    return
  if not texts.mentions(program, "get_chief_queue_runner") or not texts.mentions(
      program, "start_queue_runners", "create_threads", "add_queue_runner", "QUEUE_RUNNERS",
      "learning"):
    yield from program.calls(jobs.SYNC)


def _two_of_them(program):
  """Yields all optimizers except the first; optimizers in a branch of an `if` do not count."""
  calls = [call for call in program.calls(jobs.SYNC)
           if program.enclosing(call, (ast.If, ast.IfExp)) is None]
  yield from sorted(calls, key=lambda call: call.lineno)[1:]


RULES = (
  Rule("sync-tokens-are-shared", TRAP,
       "A token belongs to no replica: one worker's gradients can fill an update of all replicas",
       "Use SyncReplicasOptimizer of tf1ps: each update has one gradient of each replica.",
       "docs/replication.md#how-it-works", True, _tokens),
  Rule("sync-drops-gradients", TRAP,
       "With spare replicas, late gradients are dropped in silence",
       "Use SyncReplicasOptimizer of tf1ps, which counts them.",
       "docs/replication.md#spare-workers", True, _late_gradients),
  Rule("sync-uneven-data", TRAP,
       "When the data of one replica end, the others wait forever for its gradient",
       "Use SyncReplicasOptimizer of tf1ps, with on_uneven.",
       "docs/replication.md#when-data-or-a-worker-end-early", True, _uneven_data),
  Rule("sync-ends-with-chief", TRAP,
       "On TensorFlow 2 a chief that ends closes the token queue: the "
       "others end early, with exit code 0",
       "Use SyncReplicasOptimizer of tf1ps, which needs no thread on the chief.",
       "docs/replication.md#how-it-works", True, _ends_with_chief),
  Rule("sync-local-step-not-set", TRAP,
       "Nothing here runs local_step_init_op: the first gradient of a late worker "
       "counts as stale and is dropped",
       "Pass it to the Supervisor as local_init_op on the workers other than the chief.",
       "docs/replication.md#synchronous-updates-by-hand", True, _local_steps),
  Rule("sync-without-chief-thread", TRAP,
       "Nothing here starts the chief's queue runner: no update happens, and all wait forever",
       "Pass make_session_run_hook(is_chief) to the session, or start get_chief_queue_runner().",
       "docs/replication.md#synchronous-updates-by-hand", True, _nobody_applies),
  Rule("sync-optimizers-collide", TRAP,
       "This is a second SyncReplicasOptimizer in the container: both share one token queue",
       "Build each in its own container, or use SyncReplicasOptimizer of tf1ps.",
       "docs/replication.md#how-it-works", True, _two_of_them),
)
