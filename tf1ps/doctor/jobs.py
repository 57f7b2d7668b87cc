"""The role of a program in its job: its task in a cluster, and its sessions."""

from __future__ import annotations

import ast
from typing import Iterator, List, NamedTuple, Optional, Set

from tf1ps.doctor import texts

LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TRAINING_SESSION = "tf.train.MonitoredTrainingSession"
SUPERVISOR = "tf.train.Supervisor"
SYNC = "tf.train.SyncReplicasOptimizer"
SETTER = "tf.train.replica_device_setter"
SUPERVISED = ("prepare_or_wait_for_session", "managed_session")
LEARNING = tuple(package + name for package in ("tf.contrib.", "tf_slim.")
                 for name in ("slim.learning.train", "training.train", "learning.train"))
_PLAIN = ("tf.Session", "tf.InteractiveSession")
_CREATORS = ("tf.train.ChiefSessionCreator", "tf.train.WorkerSessionCreator")


def function_of(program, node: ast.AST) -> ast.AST:
  """Returns the function or module around a node."""
  return program.enclosing(node, FUNCTIONS + (ast.Module,))


def is_ours(program, node: Optional[ast.AST]) -> bool:
  """Whether an expression comes from tf1ps."""
  return program.origin_of(node).split(".")[0] == "tf1ps"


def task_servers(program) -> List[ast.Call]:
  """Returns the servers of a program that is started once for each task of its cluster.

  A program that starts all servers of a cluster itself starts them in a loop, or with constant
  indices.
  """
  return [call for call in program.calls("tf.train.Server")
          if program.enclosing(call, LOOPS) is None and not _is_constant(
            program, program.argument(call, "task_index", 2))]


def _is_constant(program, node):
  return node is None or isinstance(program.value_of(node), (int, str))


def has_stock_server(program) -> bool:
  """Whether a program is a task of a cluster, with a server of TensorFlow."""
  return any(not is_ours(program, call) for call in task_servers(program))


def names_ps(program) -> bool:
  """Whether a program names a job called ps."""
  # In Python 3.7, the text of a constant is the attribute `s`.
  return any(isinstance(node, ast.expr) and not isinstance(node, (ast.Name, ast.Attribute))
             and "ps" in (getattr(node, "value", None), getattr(node, "s", None))
             for node in program.nodes)


def is_on_ps(program, node: ast.AST, function: ast.AST) -> bool:
  """Whether a statement or call of a function runs only on a ps."""
  jobs_of = [program.value_of(program.argument(server, "job_name", 1))
             for server in task_servers(program)]
  if jobs_of == ["ps"]:
    return True
  places = [node] + [call for call in program.nodes if isinstance(call, ast.Call)
                     and getattr(call.func, "id", "") == getattr(function, "name", None)]
  return any(_asks_for_ps(program, place) for place in places)


def _asks_for_ps(program, node):
  """Whether a node is in the branch of an `if` for the job ps, or for all jobs except worker."""
  parent = program.parent(node)
  while parent is not None:
    if isinstance(parent, ast.If) and isinstance(parent.test, ast.Compare):
      compared = list(map(program.value_of, [parent.test.left, *parent.test.comparators]))
      is_equal = isinstance(parent.test.ops[0], ast.Eq)
      if (node in (parent.body if is_equal else parent.orelse) and "ps" in compared
          or is_equal and node in parent.orelse and "worker" in compared):
        return True
    node, parent = parent, program.parent(parent)
  return False


class Opening(NamedTuple):
  """A place where a program opens a session on a server."""

  call: ast.Call
  config: Optional[ast.AST]  # the argument `config`
  is_training: bool  # whether the session initialises, recovers and saves


def sessions(program) -> Iterator[Opening]:
  """Yields the sessions that a program opens on servers."""
  for calls, target, config, is_training in (
      (program.calls(*_PLAIN), ("target", 0), ("config", 2), False),
      (program.calls(TRAINING_SESSION), ("master", 0), ("config", 9), True),
      (program.calls(*_CREATORS), ("master", 1), ("config", 2), True),
      (program.method_calls(SUPERVISOR, *SUPERVISED), ("master", 0), ("config", 1), True),
      (program.calls(*LEARNING), ("master",), ("session_config",), True)):
    for call in calls:
      if is_remote(program, program.argument(call, *target)):
        yield Opening(call, program.argument(call, *config), is_training)


def is_remote(program, node: Optional[ast.AST], depth: int = 5) -> bool:
  """Whether the target of a session is a server."""
  if node is None or not depth:
    return False
  value = program.value_of(node)
  if isinstance(value, str):
    return bool(value)
  if isinstance(node, ast.Attribute) and node.attr == "target":
    return True
  if isinstance(node, ast.BinOp):
    return isinstance(program.value_of(node.left), str)  # "grpc://" + host
  return is_remote(program, program.single_value(node), depth - 1)


def local_functions(program) -> Set[ast.AST]:
  """Returns the functions with plain sessions in this process, and without sessions on servers."""
  targets = {call: program.argument(call, "target", 0) for call in program.calls(*_PLAIN)}
  local = {function_of(program, call) for call, target in targets.items()
           if target is None or program.value_of(target) == ""}
  return local - {function_of(program, opening.call) for opening in sessions(program)}


def under_condition(program, node: ast.AST, words) -> bool:
  """Whether a node is in an `if` whose condition has any of these words in its names."""
  before, parent = node, program.parent(node)
  while parent is not None:
    if isinstance(parent, (ast.If, ast.IfExp)) and before is not parent.test:
      if any(word in texts.words_of(parent.test) for word in words):
        return True
    if isinstance(parent, ast.BoolOp) and any(
        word in texts.words_of(operand) for operand in parent.values for word in words):
      return True
    before, parent = parent, program.parent(parent)
  return False
