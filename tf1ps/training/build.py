"""Builds a worker's training step, by whichever replication scheme the options ask for."""

from __future__ import annotations

from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.program import Program
from tf1ps.training import all_reduce, between_graph, in_graph
from tf1ps.training import options as options_lib
from tf1ps.training.step import Step


def build_step(program: Program, cluster: Cluster, shard: Shard, options: options_lib.Options,
               container: str = "") -> Step:
  """Builds this worker's step in the default graph.

  Args:
    program: the user's.
    cluster: with this task.
    shard: this worker's share of the data. In-graph the share of each worker is made from the
      options.
    options: what the flags say.
    container: the job's container; "" is the default one.

  Returns:
    The step.

  Raises:
    What `between_graph.build_step` raises.
  """
  if options.replication == options_lib.IN_GRAPH:
    return in_graph.build_step(program, cluster, options, container)
  build = all_reduce if options.replication == options_lib.ALL_REDUCE else between_graph
  return build.build_step(program, cluster, shard, options, container)
