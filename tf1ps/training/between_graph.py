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
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import InputPositions
from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.placement import partition_large, replica_device_setter
from tf1ps.program import Program, kind_scope, learning_rate_of, make_optimizer
from tf1ps.replication import (
  REPEAT,
  STOP_ALL,
  AgeTable,
  SyncReplicasOptimizer,
  begin_gradient_age,
  build_clones,
  clip_gradients,
  damped_learning_rate,
  devices_here,
)
from tf1ps.training import async_update, program_towers
from tf1ps.training.options import Options
from tf1ps.training.remainder import Remainder
from tf1ps.training.repeated_data import RepeatedData
from tf1ps.training.step import Batches, Step, summarize_loss
from tf1ps.transfer import (
  Prefetch,
  fetch_variables,
  keep_constants_local,
  pack_gradients,
  use_wire_dtype,
)


def scaled_learning_rate(options: Options, cluster: Cluster) -> Optional[float]:
  """The learning rate that the flags say, scaled where they ask for it; None: the default one."""
  if not options.scale_learning_rate:
    return options.learning_rate
  gradients_of_update = options.replicas_to_aggregate or cluster.num_replicas
  return gradients_of_update * learning_rate_of(options.optimizer, options.learning_rate)


def model_scope(options: Options, cluster: Cluster, container: str, on_ps: bool = True):
  """The scopes that a model is built in: its container, devices, kind of variables, partitions."""
  stack = contextlib.ExitStack()
  device = cluster.task.name
  if on_ps:
    device = replica_device_setter(
      worker_device=cluster.task.name, cluster=cluster.cluster_spec(),
      ps_strategy=options.ps_strategy) or device
  stack.enter_context(tf.get_default_graph().container(container))
  stack.enter_context(tf.device(device))
  stack.enter_context(kind_scope(options.variables))
  if options.partition_bytes is not None:
    stack.enter_context(partition_large(options.partition_bytes, max(len(cluster.ps), 1)))
  use_wire_dtype(options.wire_dtype)
  return stack


def build_step(program: Program, cluster: Cluster, shard: Shard, options: Options,
               container: str = "") -> Step:
  """Builds the step of a between-graph replica in the default graph.

  Args:
    program: the user's.
    cluster: with this task.
    shard: this worker's share.
    options: what the flags say.
    container: the job's container; "" is the default one.

  Returns:
    The step.

  Raises:
    ValueError: more gradients for an update than there are workers, a learning rate that is
      scaled or damped for a program with an optimizer of its own, more clones than GPUs, or an
      input that cannot begin again under --on_uneven=repeat.
    ShardError: the program trains on several workers and never asked its shard.
    ModelSpecError and others: what the program returned is no model.
  """
  with model_scope(options, cluster, container):
    global_step = tf.train.get_or_create_global_step()
    learning_rate = scaled_learning_rate(options, cluster)
    towers = program_towers.ProgramTowers(
      program, lambda: make_optimizer(options.optimizer, learning_rate))
    towers.add_worker(shard, options.num_clones)
    devices = devices_here(options.num_clones) if options.num_clones > 1 else [""]
    built = build_clones(towers.loss, devices, towers.optimizer())
    program_towers.check_scaling(towers, options.is_synchronous and options.scale_learning_rate)
    batches = Batches(
      built.grads_and_vars, built.loss, towers.batch_sizes[0],
      options.gradient_accumulation_steps, shard.range_reports)
    shard.range_reports = batches.range_reports
    build = _synchronous if options.is_synchronous else _asynchronous
    step = build(towers, batches, built.update_ops, options, cluster, shard)
    summarize_loss(step.loss)
    if not shard.is_dynamic:  # there the table of ranges knows what is done
      step = step._replace(positions=InputPositions(
        cluster.replica_index, cluster.num_replicas, shard.batch_size, global_step))
    if step.repeats is not None:
      step.repeats.follow(step.positions)
    return batches.complete(step)


def _asynchronous(towers, batches, update_ops, options, cluster, unused_shard) -> Step:
  """A worker's own update, made at once unless its gradient is too old.

  The age of the gradient is measured after the update, on the ps; a policy needs it before.
  """
  global_step = tf.train.get_global_step()
  begun, ahead = begin_gradient_age(global_step), Prefetch() if options.prefetch else None
  if ahead is not None:
    begun, = ahead.hold([begun])
  arrived = pack_gradients(
    _clipped(batches.grads_and_vars, options.clip_norm), options.pack_bytes, options.wire_dtype)
  # Moving averages of batch normalisation and the like are updated with the step.
  with tf.control_dependencies(update_ops):
    train_op, age, taken = async_update.build_update(
      arrived, global_step, towers.optimizers[0], _make_damped(towers, options, cluster),
      options.staleness.drop, begun)
  fetch_variables(options.pack_bytes, options.wire_dtype, hold=ahead and ahead.hold)
  keep_constants_local()
  step = Step(train_op, batches.loss, batches.examples, taken=taken)
  if ahead is not None:
    step = step._replace(train_op=ahead.with_put(train_op), hooks=[ahead.make_session_run_hook()])
  if cluster.num_replicas == 1 and not options.overlaps:  # nothing could be stale
    return step
  table = AgeTable(global_step, cluster.replica_index)
  return step._replace(counted=table.count(age, options.staleness.drop), age_tables=[table])


def _make_damped(towers, options, cluster):
  """Returns what makes the optimizer of the gradient's age; None without such a policy."""
  if not options.staleness.damp:
    return None
  if towers.has_own_optimizer:
    raise ValueError("--staleness_policy=damp has no effect: the program brings an optimizer of "
                     "its "
                     "own, which knows its learning rate")
  rate = learning_rate_of(options.optimizer, scaled_learning_rate(options, cluster))
  return lambda age: make_optimizer(options.optimizer, damped_learning_rate(rate, age))


def _clipped(grads_and_vars, clip_norm) -> list:
  """The gradients that there are, clipped."""
  grads_and_vars = [(g, v) for g, v in grads_and_vars if g is not None]
  if clip_norm is not None and grads_and_vars:
    grads_and_vars = clip_gradients(grads_and_vars, clip_norm)
  return grads_and_vars


def _synchronous(towers, batches, update_ops, options, cluster, shard) -> Step:
  """The program's optimizer, over the gradients of all workers."""
  optimizer, count = towers.optimizers[0], cluster.num_replicas
  if isinstance(optimizer, SyncReplicasOptimizer):
    raise ValueError("the program's optimizer is a SyncReplicasOptimizer: with --sync_replicas the "
                     "program gives the optimizer inside of it")
  aggregate = options.replicas_to_aggregate or count
  if aggregate > count:
    raise ValueError("--replicas_to_aggregate=%d, but there are %d workers: give %d or less" % (
      aggregate, count, count))
  optimizer = SyncReplicasOptimizer(
    optimizer, aggregate, count, replica_index=cluster.replica_index,
    on_uneven=options.on_uneven, clip_norm=options.clip_norm, pack_bytes=options.pack_bytes,
    wire_dtype=options.wire_dtype)
  remainder, before = None, list(update_ops)
  if options.on_uneven == STOP_ALL and shard.epochs:
    remainder = Remainder(towers.batch_sizes[0], batches.examples)
    before.append(remainder.note)
  with tf.control_dependencies(before):
    train_op = optimizer.apply_gradients(
      batches.grads_and_vars, tf.train.get_global_step(), loss=batches.loss)
  result = optimizer.round_result
  hook = optimizer.make_session_run_hook(cluster.is_chief, start_timeout=options.start_timeout)
  repeats = RepeatedData(optimizer) if options.on_uneven == REPEAT else None
  return Step(train_op, result.loss, batches.examples, taken=result.taken, remainder=remainder,
              global_step=result.global_step, repeats=repeats, hooks=[hook])
