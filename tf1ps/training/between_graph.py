"""The graph of one between-graph replica: a program's model, its update, and where each lives.

Every worker builds the same variables by the same names on the ps, and its own copy of everything
else. The order of what happens to a batch:

1. `input_fn` and the forward and backward pass run on the worker, on values read from the ps.
2. The optimizer's update runs on the ps, one variable at a time, without waiting for other workers.
3. The global step is raised.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import spec as spec_lib
from tf1ps.pipeline import shard as shard_lib
from tf1ps.placement import device_setter
from tf1ps.training import model as model_lib
from tf1ps.training import optimizers, variable_kind
from tf1ps.training import program as program_lib


class Replica(NamedTuple):
  """The parts of a replica's graph that the training loop runs."""

  train_op: tf.Operation  # one update of the variables
  loss: tf.Tensor  # [], of the batch
  batch_examples: object  # the size of the batch, an int or a scalar int tensor
  shard: shard_lib.Shard  # this worker's share of the data


def build_replica(
  program: program_lib.Program, cluster: spec_lib.Cluster, shard: shard_lib.Shard,
  optimizer: str, learning_rate: Optional[float], container: str = "",
  variables: str = variable_kind.RESOURCE, ps_strategy: str = "greedy"
) -> Replica:
  """Builds a replica in the default graph.

  Args:
    program: the user's.
    cluster: with this task.
    shard: this worker's share.
    optimizer: the name of the optimizer where the program has none of its own.
    learning_rate: of that optimizer, or None for its default.
    container: the job's container; "" is the default one.
    variables: their kind, "resource" or "ref".
    ps_strategy: "greedy" (by bytes) or "round_robin".

  Returns:
    The replica.

  Raises:
    shard.ShardError: the program trains on several workers and never asked its shard.
    model.ModelSpecError and others: what the program returned is no model.
  """
  graph = tf.get_default_graph()
  setter = device_setter.replica_device_setter(
    worker_device=cluster.task.name, cluster=cluster.cluster_spec(), ps_strategy=ps_strategy)
  with graph.container(container), tf.device(setter or cluster.task.name), \
      variable_kind.kind_scope(variables):
    global_step = tf.train.get_or_create_global_step()
    features, labels = program_lib.build_input(program, "train", shard)
    shard_lib.check_asked(shard)
    spec = program.model_fn(features, labels, "train")
    model_lib.check_model_spec(spec, "train")
    update = spec.optimizer or optimizers.make_optimizer(optimizer, learning_rate)
    # Moving averages of batch normalisation and the like are updated with the step.
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
      train_op = update.minimize(spec.loss, global_step=global_step)
    # Under this very name: tf.summary.scalar's would be "loss_1" beside an operation "loss".
    tf.add_to_collection(
      tf.GraphKeys.SUMMARIES, tf.raw_ops.ScalarSummary(tags="loss", values=spec.loss))
    return Replica(train_op, spec.loss, program_lib.batch_size_of(features), shard)
