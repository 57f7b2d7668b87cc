"""Rules of summaries."""

from __future__ import annotations

import ast

from tf1ps.doctor import device_scopes, jobs, texts
from tf1ps.doctor.findings import TRAP, Rule

_WRITERS = ("tf.summary.FileWriter", "tf.train.SummaryWriter")
_SUMMARIES = ("tf.summary.scalar", "tf.summary.histogram", "tf.scalar_summary",
              "tf.histogram_summary", "tf.summary.image", "tf.image_summary")
_OF_A_TASK = ("chief", "master", "task_index", "task_id", "task", "index", "rank", "worker_id")


def _writers(program):
  """Yields writers that every worker makes, for the same folder."""
  if not jobs.task_servers(program):
    return
  ways_of, local = device_scopes.Ways(program), jobs.local_functions(program)
  for call in program.calls(*_WRITERS):
    folder = program.argument(call, "logdir", 0)
    if folder is None or _names_task(program, folder) or jobs.under_condition(
        program, call, _OF_A_TASK):
      continue
    ways = ways_of.to(call)
    if any(not local & set(way.functions) and not _is_left(program, call, way) for way in ways):
      yield call


def _names_task(program, node, depth=5):
  if node is None or not depth:
    return False
  for inner in ast.walk(node):
    words = (getattr(inner, "id", "") + " " + getattr(inner, "attr", "")).lower()
    if any(word in words for word in _OF_A_TASK + ("tmp", "temp")):
      return True
    if isinstance(inner, (ast.Name, ast.Attribute)):
      for bound in program.bindings(inner):
        if bound.value is not node and _names_task(program, bound.value, depth - 1):
          return True
  return False


def _is_left(program, call, way):
  """Whether a condition keeps a task from a call: around a call of its way, or by a return."""
  for function in way.functions:
    for node in ast.walk(function):
      if (isinstance(node, ast.If) and node.lineno < call.lineno
          and any(isinstance(statement, ast.Return) for statement in node.body)
          and any(word in texts.words_of(node.test) for word in ("chief", "index", "rank"))):
        return True
      if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and any(
          getattr(other, "name", None) == node.func.id for other in way.functions):
        if jobs.under_condition(program, node, ("chief", "index", "rank")):
          return True
  return False


def _fed_summaries(program):
  """Yields Supervisors that run summaries in a thread, which cannot feed placeholders."""
  fed = _fed_names(program)
  if not any(_is_fed(program, argument, fed) for call in program.calls(*_SUMMARIES)
             for argument in call.args[1:]):
    return
  for call in program.calls(jobs.SUPERVISOR):
    summary = program.argument(call, "summary_op", 8)
    folder = program.argument(call, "logdir", 7)
    if (summary is None or program.value_of(summary) is not None) and folder is not None:
      if program.value_of(folder) is not None and not program.may_have_more(call):
        yield call


def _fed_names(program):
  """Returns the names of values that depend on a placeholder."""
  assignments = [node for node in program.nodes if isinstance(node, ast.Assign)]
  fed, before = set(), -1
  while len(fed) != before:
    before = len(fed)
    for node in assignments:
      if _is_fed(program, node.value, fed):
        fed |= {inner.id for target in node.targets for inner in ast.walk(target)
                if isinstance(inner, ast.Name)}
  return fed


def _is_fed(program, node, fed):
  for inner in ast.walk(node):
    if isinstance(inner, ast.Name) and inner.id in fed:
      return True
    if isinstance(inner, ast.Call) and program.name_of(inner.func) == "tf.placeholder":
      return True
  return False


RULES = (
  Rule("summary-writer-on-each-worker", TRAP,
       "All workers write events into this folder, and TensorBoard mixes them",
       "Make the writer only on the chief, or give each worker its own folder.",
       "docs/monitoring.md#tensorboard", False, _writers),
  Rule("summary-needs-feeds", TRAP,
       "The Supervisor's summary thread feeds no placeholder, and its error ends training",
       "Pass summary_op=None, and write the summaries with sv.summary_computed.",
       "docs/drop_in.md#a-supervisor", True, _fed_summaries),
)
