"""Builds a worker's training step by the replication scheme of the options."""

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
    program: the user's program.
    cluster: the cluster, with this task.
    shard: this worker's share of the data. In-graph replication makes every worker's share from the
      options.
    options: the job's options.
    container: the job's container; "" is TensorFlow's default.

  Returns:
    The step. With asynchronous in-graph replication its `others` are the other workers' steps.

  Raises:
    ValueError: more gradients per update than workers; a learning rate that is scaled or damped
      for a program with its own optimizer; more clones than GPUs; or an input that cannot begin
      again under --on_uneven=repeat.
    ShardError: the program trains on several workers and did not divide its data by its shard.
    ModelSpecError and others: the program returned no model.
  """
  if options.replication == options_lib.IN_GRAPH:
    return in_graph.build_step(program, cluster, options, container)
  build = all_reduce if options.replication == options_lib.ALL_REDUCE else between_graph
  return build.build_step(program, cluster, shard, options, container)
