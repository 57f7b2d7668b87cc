"""What a program is in its job: a task of a cluster, and which sessions it opens there."""

from __future__ import annotations

import ast
from typing import Iterator, List, NamedTuple, Optional

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


def is_ours(program, node: Optional[ast.AST]) -> bool:
  """Whether an expression comes from tf1ps."""
  return program.origin_of(node).split(".")[0] == "tf1ps"


def task_servers(program) -> List[ast.Call]:
  """Returns the servers of a program that is started once for each task of its cluster.

  A program that starts all servers of a cluster itself has a loop, or knows their indices.
  """
  return [call for call in program.calls("tf.train.Server")
          if program.enclosing(call, LOOPS) is None and not _is_constant(
            program, program.argument(call, "task_index", 2))]


def _is_constant(program, node):
  return node is None or isinstance(program.value_of(node), (int, str))


def has_stock_server(program) -> bool:
  """Whether a program is a task, by a server of TensorFlow."""
  return any(not is_ours(program, call) for call in task_servers(program))


def names_ps(program) -> bool:
  """Whether a program knows of a job called ps."""
  # Python 3.7 has the text of a constant elsewhere.
  return any(isinstance(node, ast.expr) and not isinstance(node, (ast.Name, ast.Attribute))
             and "ps" in (getattr(node, "value", None), getattr(node, "s", None))
             for node in program.nodes)


class Opening(NamedTuple):
  """A place where a program opens a session on a server."""

  call: ast.Call
  config: Optional[ast.AST]  # the argument `config`
  is_training: bool  # whether it initialises, recovers and saves


def sessions(program) -> Iterator[Opening]:
  """Yields the sessions that a program opens on servers."""
  argument = program.argument
  for call in program.calls(*_PLAIN):
    if is_remote(program, argument(call, "target", 0)):
      yield Opening(call, argument(call, "config", 2), False)
  for call in program.calls(TRAINING_SESSION):
    if is_remote(program, argument(call, "master", 0)):
      yield Opening(call, argument(call, "config", 9), True)
  for call in program.calls(*_CREATORS):
    if is_remote(program, argument(call, "master", 1)):
      yield Opening(call, argument(call, "config", 2), True)
  for call in program.method_calls(SUPERVISOR, *SUPERVISED):
    if is_remote(program, argument(call, "master", 0)):
      yield Opening(call, argument(call, "config", 1), True)
  for call in program.calls(*LEARNING):
    if is_remote(program, argument(call, "master")):
      yield Opening(call, argument(call, "session_config"), True)


def is_remote(program, node: Optional[ast.AST], depth: int = 5) -> bool:
  """Whether a session's target is a server's."""
  if node is None or not depth:
    return False
  value = program.value_of(node)
  if isinstance(value, str):
    return bool(value)
  if isinstance(node, ast.Attribute) and node.attr == "target":
    return True
  if isinstance(node, ast.BinOp):
    return isinstance(program.value_of(node.left), str)  # "grpc://" + host
  bound = program.bindings(node)
  return len(bound) == 1 and is_remote(program, bound[0].value, depth - 1)


def is_local_session(program, call: ast.Call) -> bool:
  """Whether a call of `tf.Session` opens a session in this process."""
  target = program.argument(call, "target", 0)
  return target is None or program.value_of(target) == ""


def local_sessions(program) -> Iterator[ast.Call]:
  """Yields the plain sessions in this process."""
  for call in program.calls(*_PLAIN):
    if is_local_session(program, call):
      yield call


def under_condition(program, node: ast.AST, words) -> bool:
  """Whether a node stands in an `if` whose condition has one of these words in its names."""
  before, parent = node, program.parent(node)
  while parent is not None:
    if isinstance(parent, (ast.If, ast.IfExp)) and before is not parent.test:
      if any(word in texts.words_of(parent.test) for word in words):
        return True
    if isinstance(parent, ast.BoolOp) and any(
        word in texts.words_of(each) for each in parent.values for word in words):
      return True
    before, parent = parent, program.parent(parent)
  return False
