"""Rules of containers and of the reset."""

from __future__ import annotations

import ast
import re

from tf1ps.doctor import texts
from tf1ps.doctor.findings import TRAP, Rule

_NAME = re.compile(r"[A-Za-z0-9.*][A-Za-z0-9.\-/*]*")
_RESET = "tf.Session.reset"


def _names(program):
  for call in program.calls("tf.container"):
    name = texts.text_of(program, program.argument(call, "container_name", 0))
    if name and not _NAME.fullmatch(name):
      yield call


def _entered_too_early(program):
  """Yields container scopes around, or before, the graph that they are meant for."""
  for call in program.calls("tf.container"):
    item = program.parent(call)
    block = program.parent(item)
    if not isinstance(item, ast.withitem):
      continue
    inner = block.items[block.items.index(item) + 1:] + [
      entered for node in block.body for within in ast.walk(node)
      if isinstance(within, ast.With) for entered in within.items]
    if any(_is_new_graph(program, entered.context_expr) for entered in inner):
      yield call


def _is_new_graph(program, node):
  return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
          and node.func.attr == "as_default" and program.made_by(node.func.value) == "tf.Graph")


def _round_runs(program):
  """Yields container scopes and variable scopes that contain only session runs."""
  for call in program.calls("tf.container", "tf.variable_scope"):
    block = program.parent(program.parent(call))
    if isinstance(block, ast.With) and all(map(_is_run, map(_call_of, block.body))):
      yield call


def _call_of(statement):
  value = getattr(statement, "value", None)
  if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "print" and value.args:
    return value.args[-1]
  return value


def _is_run(node):
  return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
          and node.func.attr in ("run", "eval"))


def _resets(program):
  """Yields resets on servers with the value of their argument `containers`, or None."""
  for call in program.calls(_RESET):
    target = program.argument(call, "target", 0)
    if target is not None and program.value_of(target) != "":
      node = program.argument(call, "containers", 1)
      yield call, None if node is None else program.value_of(node)


def _of_nothing(program):
  for call, names in _resets(program):
    if isinstance(names, (list, tuple)) and names and set(names) <= {"", "localhost"}:
      yield call


def _of_all(program):
  for call, names in _resets(program):
    if names is None or names in ([], ()):
      yield call


RULES = (
  Rule("container-name", TRAP,
       "A container's name may only have letters, digits, \".\", \"-\" and \"/\"",
       "Give the container another name, such as \"jobs/a\".",
       "docs/cluster.md#names", False, _names),
  Rule("container-before-graph", TRAP,
       "This enters the container before the graph is the default graph, so it has no effect",
       "Enter the container inside `with graph.as_default()`.",
       "docs/cluster.md#building-in-a-container", False, _entered_too_early),
  Rule("container-round-run", TRAP,
       "A container or scope only affects operations that are built in it, not a run",
       "Build the operations inside it.",
       "docs/cluster.md#building-in-a-container", False, _round_runs),
  Rule("reset-clears-nothing", TRAP,
       "The default container has the name of the server's job, so this reset clears nothing",
       "Name the job, such as \"ps\", or use tf1ps-reset default.",
       "docs/cluster.md#names", False, _of_nothing),
  Rule("reset-clears-all", TRAP,
       "Without names a reset clears the default containers of all tasks, for all clients",
       "Name the containers, or use tf1ps-reset.",
       "docs/cluster.md#clearing-containers", False, _of_all),
  Rule("reset-breaks-sessions", TRAP,
       "A reset waits for all tasks without a limit and ends the sessions of its master; a ps of "
       "TensorFlow 2 on which a queue's operation waits dies",
       "Use tf1ps-reset, or reset_containers of tf1ps.state.",
       "docs/cluster.md#clearing-containers", False,
       lambda program: [call for call, _ in _resets(program)]),
)
