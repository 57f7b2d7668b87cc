"""The signature of a graph: the variables that a worker's graph must share with the chief's.

Between-graph replicas share only the names of their variables. A worker with a further variable
would wait two hours for its initialisation. A worker whose variable has another shape, device or
kind would share nothing, or break the ps. So the chief writes its shared variables, and the flags
that must agree, into the record of the run. Each worker compares its graph and flags with them.
"""

from __future__ import annotations

import logging
from typing import Iterable, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error

_log = logging.getLogger("tf1ps")
_KINDS = {"VarHandleOp": "resource", "VariableV2": "ref", "Variable": "ref"}
_FLAG = "flag"  # the kind in the row of a flag


class GraphMismatchError(Error, RuntimeError):
  """This task's graph and the chief's differ in their shared variables or flags."""


def signature(own_task, flags: Sequence[str] = (),
              variables: Iterable[tf.Variable] = None) -> List[list]:
  """Describes the variables that a graph shares with other tasks' graphs.

  Args:
    own_task: the `Task` of this process; variables on this task are not shared.
    flags: flags, as texts, that must be the same on all workers.
    variables: the global variables; None: those of the default graph.

  Returns:
    Rows [name, shape as text, dtype, device, kind]: the flags, then the variables by name.
  """
  flags = [[text, "", "", "", _FLAG] for text in flags]
  variables = tf.global_variables() if variables is None else variables
  rows = []
  for variable in variables:
    device = variable.device or ""
    task = "".join("/%s:%s" % pair for pair in _job_and_task(device))
    if task and task == own_task.name:
      continue
    kind = _KINDS.get(variable.op.type, variable.op.type)
    rows.append([variable.name, str(variable.shape), variable.dtype.base_dtype.name, task, kind])
  return flags + sorted(rows)


def _job_and_task(device: str):
  spec = tf.DeviceSpec.from_string(device)
  if spec.job is not None:
    yield "job", spec.job
    yield "task", spec.task or 0


def check_container(own_task, container: str, variables: Iterable[tf.Variable] = None) -> None:
  """Raises ValueError for shared variables in a container other than the job's.

  Such state would not belong to the run: it may be from an earlier job, and no reset would clear
  it.
  See `signature` for the arguments.
  """
  variables = tf.global_variables() if variables is None else variables
  for variable in variables:
    task = "".join("/%s:%s" % pair for pair in _job_and_task(variable.device or ""))
    if not task or task == own_task.name or variable.op.type not in _KINDS:
      continue
    theirs = variable.op.get_attr("container").decode("utf-8")
    if theirs != container:
      raise ValueError(
        "variable %s is in container %r, but the job's container is %r: give the server the same "
        "(tf1ps.Server(..., container=%r)), or build the graph in `with tf.container(%r):`" % (
          variable.name, theirs, container, theirs, container))


def compare(mine: List[list], chiefs: List[list], own_name: str, chief_name: str) -> None:
  """Raises GraphMismatchError if a signature differs from the chief's.

  The error names up to five differences. A program without flags builds its graphs itself, so its
  chief may have more variables, such as the variables of an evaluation. Their number is logged.
  """
  flags, chiefs_flags = ([row[0] for row in rows if row[4] == _FLAG] for rows in (mine, chiefs))
  if flags != chiefs_flags:
    raise GraphMismatchError(
      "%s was started with %s, but the chief, %s, with %s. Give all workers the same" % (
        own_name, " ".join(flags) or "none of its flags", chief_name,
        " ".join(chiefs_flags) or "none of these flags"))
  here = {row[0]: row[1:] for row in mine if row[4] != _FLAG}
  there = {row[0]: list(row[1:]) for row in chiefs if row[4] != _FLAG}
  differences = []
  if not flags:
    more = sorted(set(there) - set(here))
    if more:
      _log.info("%s, the chief, has %d further variables, such as %s", chief_name, len(more),
                more[0])
    there = {name: row for name, row in there.items() if name in here}
  for name in sorted(set(here) | set(there)):
    if name not in there:
      differences.append("variable %s (%s) is in this graph and not in the chief's" % (
        name, _say(here[name])))
    elif name not in here:
      differences.append("variable %s (%s) is in the chief's graph and not in this graph" % (
        name, _say(there[name])))
    elif here[name] != there[name]:
      differences.append("variable %s is %s here and %s in the chief's graph" % (
        name, _say(here[name]), _say(there[name])))
  if not differences:
    return
  more = "" if len(differences) <= 5 else "; and %d more" % (len(differences) - 5)
  raise GraphMismatchError("the graph of %s differs from that of %s, the chief: %s%s" % (
    own_name, chief_name, "; ".join(differences[:5]), more))


def _say(row: list) -> str:
  shape, dtype, task, kind = row
  return "%s %s%s%s" % (kind, dtype, shape, " on %s" % task if task else "")
