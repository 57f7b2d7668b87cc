"""The load table: the variables and bytes that each task holds, and the rows that a step looks up.

`make_load_table` reads the graph, and `format_load_table` makes the text that a chief prints at its
start. The slots of an optimizer count as variables. A shard of a partitioned variable counts as a
variable and as a shard.

Equal bytes are not equal work: if most ids of a batch are rows of one shard, the ps of that shard
has most of the work. The ids are known only in a step, so `count_lookups` builds the counts, and a
step returns them.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.graph import VARIABLE_OPS, depths, in_order, needed_ops, source_op, task_of_device
from tf1ps.placement import load_balancing

_GATHERS = frozenset(["ResourceGather", "GatherV2", "Gather"])
_READS = frozenset(["Identity", "ReadVariableOp"])  # from a variable to a gather


class TaskLoad(NamedTuple):
  """The variables of one task."""

  task: str  # "/job:ps/task:0"; "" for variables whose device names no job
  variables: int  # number of variables
  bytes: int  # their total size; a variable whose shape is not fully known counts 0
  shards: int = 0  # how many of the variables are shards of partitioned variables


def make_load_table(variables: Optional[Sequence[tf.Variable]] = None,
                    graph: Optional[tf.Graph] = None) -> List[TaskLoad]:
  """Returns the variables and bytes of each task that holds a variable, ordered by job and index.

  Variables without a job come first.

  Args:
    variables: list of variables, ref or resource; None: the global variables of `graph`.
    graph: `tf.Graph`; None: the default graph. Ignored if `variables` is given.

  Raises:
    TypeError: one of `variables` has no op; a partitioned variable, for example.
  """
  if variables is None:
    graph = tf.get_default_graph() if graph is None else graph
    variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
  loads: Dict[tuple, tuple] = {}
  for variable in variables:
    if not isinstance(getattr(variable, "op", None), tf.Operation):
      raise TypeError("the load table takes variables with an op, as tf.global_variables() lists "
                      "them (of a partitioned variable its parts); got %r" % (variable,))
    spec = tf.DeviceSpec.from_string(variable.device or "")
    # The key sorts task 2 before task 10, and a job without a task before its tasks.
    key = (spec.job or "", -1 if spec.task is None else spec.task)
    count, size, shards = loads.get(key, (0, 0, 0))
    loads[key] = (count + 1, size + load_balancing.known_bytes(variable.op),
                  shards + _is_shard(variable))
  return [TaskLoad(_task_name(*key), *loads[key]) for key in sorted(loads)]


def count_lookups(fetches: Any) -> Dict[str, tf.Tensor]:
  """Counts the rows of variables that a step looks up, by the task that holds them.

  Fetch the counts in the run of the step. The counts use the ids of the step's lookups, so they
  look up no further rows. A lookup in a branch or a loop does not count.

  Args:
    fetches: a tensor or operation that needs the lookups, such as the loss, or a list of them.

  Returns:
    {"/job:ps/task:0": int64 scalar}, for each task with a lookup.
  """
  ops = needed_ops([getattr(each, "op", each) for each in tf.nest.flatten(fetches)])
  around = depths(in_order(ops))
  sizes: Dict[str, List[tf.Tensor]] = {}
  for op in ops:
    if op.type in _GATHERS and not around[op.name].branches:
      variable = source_op(op.inputs[0], _READS)
      if variable.type in VARIABLE_OPS:
        ids = op.inputs[1]
        with tf.get_default_graph().colocate_with(ids.op):  # so that no id travels for the count
          sizes.setdefault(task_of_device(variable.device), []).append(
            tf.size(ids, out_type=tf.int64))
  return {task: tf.add_n(sizes[task]) for task in sorted(sizes)}


def format_load_table(rows: Sequence[TaskLoad],
                      lookups: Optional[Mapping[str, float]] = None) -> str:
  """Returns the load table as aligned text.

  The table has a line of headings and one line per task: the task, its number of variables, its
  number of shards if any task has shards, its bytes, and its percentage of all bytes. The last line
  has no line break.

  Args:
    rows: the rows of `make_load_table`.
    lookups: the rows that a step looks up on each task, from runs of `count_lookups`: two more
      columns, with the task's percentage. None: no such columns.
  """
  columns = [["ps"] + [row.task or "(not placed)" for row in rows],
             ["variables"] + ["%d" % row.variables for row in rows]]
  if any(row.shards for row in rows):
    columns.append(["shards"] + ["%d" % row.shards for row in rows])
  columns += _with_share("bytes", [row.bytes for row in rows])
  if lookups is not None:
    columns += _with_share("lookups", [lookups.get(row.task, 0) for row in rows])
  widths = [max(map(len, column)) for column in columns]
  return "\n".join(
    "  ".join([line[0].ljust(widths[0])]
              + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])])
    for line in zip(*columns))


def _with_share(name, values):
  """Returns two columns: values, and the percentage of each."""
  total = sum(values)
  return [[name] + ["{:,.0f}".format(value) for value in values],
          ["share"] + ["%.1f%%" % (100.0 * value / total if total else 0.0) for value in values]]


def _is_shard(variable):
  """Returns whether a variable is a shard of a partitioned variable, or a slot of a shard."""
  return bool(variable.to_proto().save_slice_info_def.full_name)


def _task_name(job, task):
  """Returns "/job:ps/task:0", or the part of it that is known."""
  return tf.DeviceSpec(job=job or None, task=None if task < 0 else task).to_string()
