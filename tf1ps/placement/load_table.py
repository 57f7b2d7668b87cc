"""The load table: the number of variables and bytes that each task holds.

`make_load_table` reads the graph, and `format_load_table` makes the text that a chief prints at its
start. The slots of an optimizer count as variables. A shard of a partitioned variable counts as a
variable and as a shard.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.placement import load_balancing

_HEADER = ("ps", "variables", "shards", "bytes", "share")
_SHARDS = 2  # the column of shards, which the text omits if there are none


class TaskLoad(NamedTuple):
  """The variables of one task."""

  task: str  # "/job:ps/task:0"; "" for variables whose device names no job
  variables: int  # number of variables
  bytes: int  # their total size; a variable whose shape is not fully known counts 0
  shards: int = 0  # how many of the variables are shards of partitioned ones


def make_load_table(variables=None, graph=None):
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
  loads = {}
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


def format_load_table(rows):
  """Returns the load table, rows of `TaskLoad`, as aligned text.

  A line of headings and one line per task: task, number of variables, number of shards if there are
  any, bytes, and the task's percentage of all bytes. The last line has no line break.
  """
  total = sum(row.bytes for row in rows)
  lines = [_HEADER]
  for row in rows:
    share = 100.0 * row.bytes / total if total else 0.0
    lines.append((row.task or "(not placed)", str(row.variables), str(row.shards),
                  "{:,}".format(row.bytes), "%.1f%%" % share))
  if not any(row.shards for row in rows):
    lines = [line[:_SHARDS] + line[_SHARDS + 1:] for line in lines]
  widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
  return "\n".join(
      "  ".join([line[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:])])
      for line in lines)


def _is_shard(variable):
  """Returns whether a variable is a shard of a partitioned one, or a slot of such a shard."""
  return bool(variable.to_proto().save_slice_info_def.full_name)


def _task_name(job, task):
  """Returns "/job:ps/task:0", or the part of it that is known."""
  return tf.DeviceSpec(job=job or None, task=None if task < 0 else task).to_string()
