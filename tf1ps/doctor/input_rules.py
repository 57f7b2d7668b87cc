"""Rules of input pipelines."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import DIFFERS, TRAP, Rule

_PRODUCERS = tuple("tf.train." + name for name in (
  "string_input_producer", "input_producer", "range_input_producer", "slice_input_producer"))
_BATCHES = tuple("tf.train." + name for name in (
  "batch", "batch_join", "shuffle_batch", "shuffle_batch_join"))
# Sessions that initialise local variables and start queue runners by themselves.
_SELF_STARTING = (
  jobs.TRAINING_SESSION, jobs.SUPERVISOR, "tf.train.MonitoredSession",
  "tf.train.SingularMonitoredSession") + jobs.LEARNING
_WORKERS = ("tf.Session", "tf.InteractiveSession")


def _has_only_plain_sessions(program):
  """Whether a program has plain sessions and no other sessions."""
  is_of_tf1ps = any(name.split(".")[0] == "tf1ps" and not name.startswith("tf1ps.v1")
                    for _, name in program.imports())
  return (program.calls(*_WORKERS) and not is_of_tf1ps and not program.calls(*_SELF_STARTING))


def _counted(program):
  for call in program.calls(*_PRODUCERS, "tf.train.limit_epochs"):
    epochs = program.argument(call, "num_epochs")
    if epochs is not None and program.value_of(epochs) is not None:
      yield call


def _uninitialised(program):
  if _has_only_plain_sessions(program) and not texts.mentions(
      program, "local_variables_initializer", "initialize_local_variables", "local_variables",
      "variables_initializer"):
    yield from _counted(program)


def _never_started(program):
  if _has_only_plain_sessions(program) and not texts.mentions(
      program, "start_queue_runners", "create_threads", "QueueRunners"):
    yield from program.calls(*_PRODUCERS, *_BATCHES)


def _without_coordinator(program):
  if not program.calls(*_SELF_STARTING):
    for call in program.calls("tf.train.start_queue_runners"):
      if program.argument(call, "coord", 1) is None and not program.may_have_more(call):
        yield call


def _dropped_tails(program):
  if any(True for _ in _counted(program)):
    for call in program.calls(*_BATCHES):
      if program.argument(call, "allow_smaller_final_batch") is None:
        if not program.may_have_more(call):
          yield call


def _two_gets(program):
  """Yields the second `get_next` of an iterator in the same block."""
  seen = {}
  for node in program.attribute_calls("get_next"):
    if isinstance(node.func.value, ast.Name) and "iterator" in (
        program.made_by(node.func.value) or ""):
      if program.enclosing(node, jobs.LOOPS) is None:
        seen.setdefault((node.func.value.id, _block(program, node)), []).append(node)
  for calls in seen.values():
    yield from sorted(calls, key=lambda call: call.lineno)[1:]


def _block(program, node):
  """Returns a key for the list of statements that contains a node."""
  statement = node if isinstance(node, ast.stmt) else program.enclosing(node, ast.stmt)
  parent = program.parent(statement)
  return parent, [field for field, value in ast.iter_fields(parent)
                  if isinstance(value, list) and statement in value][0]


def _iterators(program):
  if texts.mentions(program, "initializer", "TABLE_INITIALIZERS"):
    return
  if program.calls(*_WORKERS, *_SELF_STARTING):
    for node in program.attribute_calls("make_initializable_iterator"):
      if _is_only_read(program, node):
        yield node


def _is_only_read(program, call):
  """Whether a program uses an iterator only for `get_next`."""
  parent = program.parent(call)
  if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
    return getattr(parent, "attr", "") == "get_next"
  name = parent.targets[0].id
  return all(getattr(program.parent(node), "attr", "") == "get_next" for node in program.nodes
             if isinstance(node, ast.Name) and node.id == name
             and isinstance(node.ctx, ast.Load))


RULES = (
  Rule("epochs-not-initialised", TRAP,
       "Nothing here initialises the local variable of num_epochs: the input seems to end",
       "Run tf.local_variables_initializer() first.",
       "docs/data.md#queue-runners", False, _uninitialised),
  Rule("queue-runners-not-started", TRAP,
       "Nothing here starts the queue runners: the first step waits forever",
       "Call start_queue_runners with a Coordinator.",
       "docs/data.md#queue-runners", False, _never_started),
  Rule("runners-without-coordinator", TRAP,
       "Without a coordinator, a runner's error ends its thread, and the loop waits forever",
       "Pass coord=tf.train.Coordinator(), or use start_queue_runners of tf1ps.",
       "docs/data.md#queue-runners", True, _without_coordinator),
  Rule("batch-drops-tail", TRAP,
       "The records of the last, smaller batch are dropped when the epochs are over",
       "Pass allow_smaller_final_batch=True.",
       "docs/data.md#readers-and-producers", False, _dropped_tails),
  Rule("second-get-next", DIFFERS,
       "A second get_next takes another element, and the order of the two is not fixed",
       "Call get_next once, and use its result twice.",
       "docs/data.md#tfdata", False, _two_gets),
  Rule("iterator-not-initialised", TRAP,
       "Nothing here initialises this iterator",
       "Add its initializer to the collection tf.GraphKeys.TABLE_INITIALIZERS.",
       "docs/data.md#tfdata", False, _iterators),
)
