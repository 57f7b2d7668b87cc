"""From the flags to the graph that this worker trains: whichever replication they ask for."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.program import Program
from tf1ps.session import FLAGS
from tf1ps.training import all_reduce, between_graph, in_graph
from tf1ps.training import options as options_lib
from tf1ps.training import replica as replica_lib


def build_replica(program: Program, cluster: Cluster, shard: Shard,
                  options: options_lib.Options, container: str = "") -> replica_lib.Replica:
  """Builds this worker's part of the job in the default graph.

  Args:
    program: the user's.
    cluster: with this task.
    shard: this worker's share; in-graph each worker's is made from the options.
    options: what the flags say.
    container: the job's container.

  Returns:
    The replica; see `between_graph.build_replica` for what is raised.
  """
  for text in options_lib.shared_by_workers(options):
    tf.add_to_collection(FLAGS, text)
  if options.replication == "in_graph":
    return in_graph.build_replica(program, cluster, options, container)
  if options.replication == "all_reduce":
    return all_reduce.build_replica(program, cluster, shard, options, container)
  return between_graph.build_replica(
    program, cluster, shard, options.optimizer,
    between_graph.scaled_learning_rate(options, cluster),
    container, options.variables, options.ps_strategy, options.clip_norm,
    between_graph.synchronous_of(options), options.num_clones, options.max_staleness,
    options.staleness_damping, between_graph.Transfer(
      options.pack_bytes, options.wire_dtype, options.prefetch, options.steps_in_flight,
      options.gradient_accumulation_steps),
    options.partition_bytes)
