"""The graph of one between-graph replica: a program's model, its update, and where each lives.

Every worker builds the same variables by the same names on the ps, and its own copy of everything
else. The order of what happens to a batch:

1. `input_fn` and the forward and backward pass run on the worker, on values read from the ps. With
   several clones each device of the worker computes a part of the batch, and their gradients become
   one there (replication/clones.py).
2. With asynchronous updates the optimizer's update runs on the ps, one variable at a time, without
   waiting for other workers. With synchronous ones the gradient waits there for those of the
   others, and one of the workers makes the update (replication/sync_replicas_optimizer.py).
3. The global step is raised.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import InputPositions
from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.placement import partition_large, replica_device_setter
from tf1ps.program import RESOURCE, Program, kind_scope, learning_rate_of, make_optimizer
from tf1ps.replication import (
  STOP_ALL,
  AgeTable,
  SyncReplicasOptimizer,
  begin_gradient_age,
  build_clones,
  clip_gradients,
  damped_learning_rate,
  devices_here,
)
from tf1ps.training import async_update, program_towers, several_batches
from tf1ps.training import options as options_lib
from tf1ps.training import remainder as remainder_lib
from tf1ps.training import replica as replica_lib
from tf1ps.transfer import (
  DEFAULT_PACK_BYTES,
  Prefetch,
  fetch_variables,
  keep_constants_local,
  pack_gradients,
  use_wire_dtype,
)


class Synchronous(NamedTuple):
  """How synchronous updates are made."""

  aggregate: Optional[int] = None  # gradients of an update; None: one of each worker
  on_uneven: str = STOP_ALL  # what the end of one worker's data means
  start_timeout: float = 60.0  # seconds that the other workers may take to come
  scales: bool = False  # whether the learning rate was scaled by the gradients of an update


class Transfer(NamedTuple):
  """How values and gradients travel; see tf1ps/transfer."""

  pack_bytes: int = DEFAULT_PACK_BYTES  # smaller variables travel together; 0: each alone
  wire_dtype: str = "float32"  # what float32 values are sent as
  prefetch: bool = False  # whether a step computes on values fetched during the one before
  steps_in_flight: int = 1  # the steps of a worker that will run at the same time
  accumulate: int = 1  # the batches that make one gradient

  @property
  def overlaps(self) -> bool:
    """Whether a worker alone has stale gradients too."""
    return self.prefetch or self.steps_in_flight > 1


def synchronous_of(options: options_lib.Options) -> Optional[Synchronous]:
  """How the flags have updates made; None: asynchronously."""
  if options.update == "async":
    return None
  return Synchronous(options.replicas_to_aggregate, options.on_uneven, options.start_timeout,
                     options.scale_learning_rate)


def scaled_learning_rate(options: options_lib.Options, cluster: Cluster) -> Optional[float]:
  """The learning rate that the flags say, scaled where they ask for it; None: the default one."""
  if not options.scale_learning_rate:
    return options.learning_rate
  gradients_of_update = options.replicas_to_aggregate or cluster.num_replicas
  return gradients_of_update * learning_rate_of(
    options.optimizer, options.learning_rate)


def partition_scope(partition_bytes: Optional[int], cluster: Cluster):
  """A scope in which variables of more bytes are partitioned, over all ps; None: none are."""
  if partition_bytes is None:
    return contextlib.nullcontext()
  return partition_large(partition_bytes, max(len(cluster.ps), 1))


def build_replica(
  program: Program, cluster: Cluster, shard: Shard,
  optimizer: str, learning_rate: Optional[float], container: str = "",
  variables: str = RESOURCE, ps_strategy: str = "greedy",
  clip_norm: Optional[float] = None, synchronous: Optional[Synchronous] = None, clones: int = 1,
  max_staleness: Optional[int] = None, staleness_damping: bool = False,
  transfer: Optional[Transfer] = None, partition_bytes: Optional[int] = None
) -> replica_lib.Replica:
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
    clip_norm: the global norm that the gradient of an update is clipped to, or None.
    synchronous: how synchronous updates are made; None: asynchronous ones.
    clones: the devices of this worker that divide its batch.
    max_staleness: the highest age of a gradient that an asynchronous update is made of, or None.
    staleness_damping: whether its learning rate is divided by the gradient's age.
    transfer: how values and gradients travel; None: as is the default.
    partition_bytes: of the largest variable that is not partitioned, or None.

  Returns:
    The replica.

  Raises:
    ValueError: more gradients for an update than there are workers, a learning rate that is
      scaled or damped for a program with an optimizer of its own, or more clones than GPUs.
    shard.ShardError: the program trains on several workers and never asked its shard.
    model.ModelSpecError and others: what the program returned is no model.
  """
  graph, transfer = tf.get_default_graph(), transfer or Transfer()
  setter = replica_device_setter(
    worker_device=cluster.task.name, cluster=cluster.cluster_spec(), ps_strategy=ps_strategy)
  with graph.container(container), tf.device(setter or cluster.task.name), \
      kind_scope(variables), partition_scope(partition_bytes, cluster):
    use_wire_dtype(transfer.wire_dtype)
    global_step = tf.train.get_or_create_global_step()
    towers = program_towers.ProgramTowers(
      program, lambda: make_optimizer(optimizer, learning_rate))
    towers.add_worker(shard, clones)
    devices = devices_here(clones) if clones > 1 else [""]
    built = build_clones(towers.loss, devices, towers.optimizer())
    program_towers.check_scaling(towers, synchronous is not None and synchronous.scales)
    step = several_batches.Step(
      built.grads_and_vars, built.loss, towers.batch_sizes[0], transfer.accumulate,
      shard.range_reports)
    shard.range_reports = step.range_reports
    update, loss, hooks = towers.optimizers[0], step.loss, []
    remainder = None
    if synchronous is not None and synchronous.on_uneven == STOP_ALL and shard.epochs:
      remainder = remainder_lib.Remainder(towers.batch_sizes[0], step.batch_size)
    # Moving averages of batch normalisation and the like are updated with the step.
    before = built.update_ops + ([remainder.note] if remainder else [])
    if synchronous is None:
      make_damped = _make_damped(towers, optimizer, learning_rate) if staleness_damping else None
      update, hooks = _asynchronous(
        _clipped(step.grads_and_vars, clip_norm), global_step, update, make_damped, max_staleness,
        transfer, before)
      train_op = update.train_op
    else:
      update = _synchronous(update, cluster, clip_norm, synchronous, transfer)
      with tf.control_dependencies(before):
        train_op = update.apply_gradients(step.grads_and_vars, global_step, loss=loss)
      loss = update.round_result.loss
    replica = replica_lib.Replica(train_op, loss, step.batch_size)
    replica_lib.summarize_loss(replica.loss)
    if not shard.is_dynamic:  # there the table of ranges knows what is done
      hooks.append(InputPositions(
        cluster.replica_index, cluster.num_replicas, shard.batch_size, global_step))
    replica = replica._replace(hooks=hooks)
    if synchronous is None:
      if cluster.num_replicas == 1 and not transfer.overlaps:  # nothing could be stale
        return step.with_rest(replica._replace(taken=update.taken))
      table = AgeTable(global_step, cluster.replica_index)
      return step.with_rest(replica._replace(
        counted=table.count(update.age, max_staleness), age_tables=[table], taken=update.taken))
    hook = update.make_session_run_hook(
      cluster.is_chief, start_timeout=synchronous.start_timeout)
    return step.with_rest(replica._replace(
      round_result=update.round_result, remainder=remainder,
      hooks=[hook] + replica.hooks))


def _make_damped(towers, optimizer, learning_rate):
  """What makes the flags' optimizer of the gradient's age; raises ValueError."""
  if towers.has_own_optimizer:
    raise ValueError("--staleness_damping has no effect: the program brings an optimizer of its "
                     "own, which knows its learning rate")
  rate = learning_rate_of(optimizer, learning_rate)
  return lambda age: make_optimizer(optimizer, damped_learning_rate(rate, age))


def _clipped(grads_and_vars, clip_norm) -> list:
  """The gradients that there are, clipped."""
  grads_and_vars = [(g, v) for g, v in grads_and_vars if g is not None]
  if clip_norm is not None and grads_and_vars:
    grads_and_vars = clip_gradients(grads_and_vars, clip_norm)
  return grads_and_vars


def _asynchronous(grads_and_vars, global_step, optimizer, make_damped, max_staleness, transfer,
                  before):
  """A worker's own update after some operations, and the hooks that it needs."""
  begun, ahead = begin_gradient_age(global_step), Prefetch() if transfer.prefetch else None
  if ahead is not None:
    begun, = ahead.hold([begun])
  arrived = pack_gradients(grads_and_vars, transfer.pack_bytes, transfer.wire_dtype)
  with tf.control_dependencies(before):
    update = async_update.build_update(
      arrived, global_step, optimizer, make_damped, max_staleness, begun)
  fetch_variables(transfer.pack_bytes, transfer.wire_dtype, hold=ahead and ahead.hold)
  keep_constants_local()
  if ahead is None:
    return update, []
  return (update._replace(train_op=ahead.with_put(update.train_op)),
          [ahead.make_session_run_hook()])


def _synchronous(optimizer, cluster, clip_norm, synchronous, transfer):
  """A program's optimizer, over the gradients of all workers."""
  if isinstance(optimizer, SyncReplicasOptimizer):
    raise ValueError("the program's optimizer is a SyncReplicasOptimizer: with --update=sync the "
                     "program gives the optimizer inside of it")
  count = cluster.num_replicas
  aggregate = synchronous.aggregate or count
  if aggregate > count:
    raise ValueError("--replicas_to_aggregate=%d, but there are %d workers: give %d or less" % (
      aggregate, count, count))
  return SyncReplicasOptimizer(
    optimizer, aggregate, count, replica_index=cluster.replica_index,
    on_uneven=synchronous.on_uneven, clip_norm=clip_norm, pack_bytes=transfer.pack_bytes,
    wire_dtype=transfer.wire_dtype)
