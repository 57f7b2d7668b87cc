"""All-reduce replication of a program: every worker keeps the variables, and there is no ps.

All workers make the same steps at the same time (replication/mirrored_model.py), so they must agree
on the last step. Each worker reads one batch ahead of its step (batch_ahead.py), and each step
carries a vote: a worker that has no further batch votes against another step. The other workers do
not train on the batches that they have already read ahead.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.program import Program
from tf1ps.replication import build_mirrored, devices_here
from tf1ps.training import batch_ahead, between_graph
from tf1ps.training import options as options_lib
from tf1ps.training.program_towers import ProgramTowers
from tf1ps.training.step import Step, Vote, summarize


def build_step(program: Program, cluster: Cluster, shard: Shard, options: options_lib.Options,
               container: str = "") -> Step:
  """Builds a replica that has its own copy of all variables; see `build.build_step`.

  Raises:
    ValueError: a variable cannot travel between the workers, or an error of `build.build_step`.
  """
  local = devices_here(options.num_clones)
  with between_graph.model_scope(options, cluster, container, on_ps=False):
    with tf.device(cluster.task.name + local[0]):
      tf.train.get_or_create_global_step()
    towers = ProgramTowers(program, options)
    ahead = batch_ahead.BatchAhead()
    towers.add_worker(shard, options.num_clones, ahead.pass_through)
    vote = tf.placeholder_with_default(tf.constant(1.0), [], "another_step")
    numbers = iter(range(options.num_clones))
    built = build_mirrored(
      towers.loss, [cluster.task.name + device for device in local],
      lambda: towers.optimizers.of_tower(next(numbers)), cluster.replica_index,
      cluster.num_replicas, clip_norm=options.clip_norm, vote=vote,
      tasks=[task.name for task in cluster.replicas])
    towers.optimizers.summarize_learning_rate()
    summarize("loss", built.loss)
    return Step(built.train_op, built.loss, towers.batch_sizes[0],
                vote=Vote(ahead, vote, built.vote), program_hooks=towers.hooks,
                hint=towers.optimizers.hint)
