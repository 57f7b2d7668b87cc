"""All-reduce replication of a program: every worker keeps the variables, and there is no ps.

All workers make the same steps at the same time (replication/all_reduce.py), so that all must know
when to stop. A step's collective therefore carries a vote on whether another one follows: each
worker has read a batch ahead (batch_ahead.py), and votes against it where that was its last one.
The batches that the others have read by then are left over.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.program import Program, make_optimizer
from tf1ps.replication import build_mirrored, devices_here
from tf1ps.training import batch_ahead, between_graph, program_towers
from tf1ps.training import options as options_lib
from tf1ps.training.step import Step, Vote, summarize_loss


def build_step(program: Program, cluster: Cluster, shard: Shard, options: options_lib.Options,
               container: str = "") -> Step:
  """Builds this worker's graph, with variables of its own, in the default graph.

  Args:
    program: the user's.
    cluster: with this task.
    shard: this worker's share.
    options: what the flags say.
    container: the job's container.

  Returns:
    The step, which all workers make together by a vote.

  Raises:
    What `between_graph.build_step` raises; ValueError for a variable that cannot travel.
  """
  local = devices_here(options.num_clones)
  learning_rate = between_graph.scaled_learning_rate(options, cluster)
  with between_graph.model_scope(options, cluster, container, on_ps=False):
    towers = program_towers.ProgramTowers(
      program, lambda: make_optimizer(options.optimizer, learning_rate))
    ahead = batch_ahead.BatchAhead()
    towers.add_worker(shard, options.num_clones, ahead.pass_through)
    vote = tf.placeholder_with_default(tf.constant(1.0), [], "another_step")
    numbers = iter(range(options.num_clones))
    built = build_mirrored(
      towers.loss, [cluster.task.name + device for device in local],
      lambda: towers.optimizer(next(numbers)), cluster.replica_index, cluster.num_replicas,
      clip_norm=options.clip_norm, vote=vote)
    program_towers.check_scaling(towers, options.scale_learning_rate)
    summarize_loss(built.loss)
    return Step(built.train_op, built.loss, towers.batch_sizes[0],
                vote=Vote(ahead, vote, built.vote))
