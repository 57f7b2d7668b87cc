"""Rules of summaries."""

from __future__ import annotations

import ast

from tf1ps.doctor import device_scopes, jobs
from tf1ps.doctor.findings import TRAP, Rule

_WRITERS = ("tf.summary.FileWriter", "tf.train.SummaryWriter")
_SUMMARIES = ("tf.summary.scalar", "tf.summary.histogram", "tf.scalar_summary",
              "tf.histogram_summary", "tf.summary.image", "tf.image_summary")
_OF_ONE = ("chief", "master", "task_index", "task_id", "task", "index", "rank", "worker_id")


def _writers(program):
  """Writers that every worker makes, into one folder."""
  if not jobs.task_servers(program):
    return
  ways_of = device_scopes.Ways(program)
  remote = {_function(program, opening.call) for opening in jobs.sessions(program)}
  local = {_function(program, call) for call in jobs.local_sessions(program)} - remote
  for call in program.calls(*_WRITERS):
    folder = program.argument(call, "logdir", 0)
    if folder is None or _names_task(program, folder) or jobs.under_condition(
        program, call, _OF_ONE):
      continue
    ways = ways_of.to(call)
    if any(not local & set(way.functions) and not _is_left(program, call, way) for way in ways):
      yield call


def _function(program, node):
  return program.enclosing(node, jobs.FUNCTIONS + (ast.Module,))


def _names_task(program, node, depth=5):
  """Whether the task is in a folder's name."""
  if node is None or not depth:
    return False
  for each in ast.walk(node):
    words = (getattr(each, "id", "") + " " + getattr(each, "attr", "")).lower()
    if any(word in words for word in _OF_ONE) or "tmp" in words or "temp" in words:
      return True
    if isinstance(each, (ast.Name, ast.Attribute)):
      for bound in program.bindings(each):
        if bound.value is not node and _names_task(program, bound.value, depth - 1):
          return True
  return False


def _is_left(program, call, way):
  """Whether a condition stands round a call that leads there, or leaves the function before."""
  for function in way.functions:
    for node in ast.walk(function):
      if (isinstance(node, ast.If) and node.lineno < call.lineno
          and any(isinstance(each, ast.Return) for each in node.body)
          and any(word in _words(node.test) for word in ("chief", "index", "rank"))):
        return True
      if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and any(
          getattr(other, "name", None) == node.func.id for other in way.functions):
        if jobs.under_condition(program, node, ("chief", "index", "rank")):
          return True
  return False


def _words(node):
  return " ".join(getattr(each, "id", "") + " " + getattr(each, "attr", "")
                  for each in ast.walk(node)).lower()


def _fed_summaries(program):
  """Supervisors that run summaries in a thread, which cannot feed placeholders."""
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
  """Returns the names whose values depend on a placeholder."""
  assignments = [node for node in program.nodes if isinstance(node, ast.Assign)]
  fed, before = set(), -1
  while len(fed) != before:
    before = len(fed)
    for node in assignments:
      if _is_fed(program, node.value, fed):
        fed |= {each.id for target in node.targets for each in ast.walk(target)
                if isinstance(each, ast.Name)}
  return fed


def _is_fed(program, node, fed):
  for each in ast.walk(node):
    if isinstance(each, ast.Name) and each.id in fed:
      return True
    if isinstance(each, ast.Call) and program.name_of(each.func) == "tf.placeholder":
      return True
  return False


RULES = (
  Rule("summary-writer-on-each-worker", TRAP,
       "All workers write events into this folder, and TensorBoard mixes them",
       "Make the writer only on the chief, or give each worker its own folder.",
       "docs/tensorboard.md", False, _writers),
  Rule("summary-needs-feeds", TRAP,
       "The Supervisor's summary thread feeds no placeholder, and its error ends training",
       "Pass summary_op=None, and write the summaries with sv.summary_computed.",
       "docs/drop_in.md#a-supervisor", True, _fed_summaries),
)
