"""Builds a between-graph replica: a program's model, its update, and the device of each operation.

Every worker builds the same variables with the same names on the ps, and its own copy of everything
else. Each batch takes these steps:

1. The worker runs `input_fn` and the forward and backward pass on values read from the ps. With
   several clones each device of the worker computes a part of the batch, and the worker combines
   their gradients (replication/clones.py).
2. Asynchronous: the ps applies the gradients immediately. Synchronous: the gradients wait on the ps
   for the gradients of the other workers, and one worker makes the update
   (replication/sync_replicas_optimizer.py).
3. The update raises the global step.
"""

from __future__ import annotations

import contextlib

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import InputPositions
from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.placement import partition_large, replica_device_setter
from tf1ps.program import Program, resource_variables
from tf1ps.replication import (
  REPEAT,
  STOP_ALL,
  AgeTable,
  SyncReplicasOptimizer,
  begin_gradient_age,
  build_clones,
  clip_gradients,
  devices_here,
  gradient_age,
)
from tf1ps.training import async_update, own_train_op, shared_statistics
from tf1ps.training.options import Options
from tf1ps.training.program_towers import ProgramTowers
from tf1ps.training.remainder import Remainder
from tf1ps.training.repeated_data import RepeatedData
from tf1ps.training.step import Batches, Step, summarize
from tf1ps.transfer import (
  Prefetch,
  fetch_variables,
  keep_constants_local,
  pack_gradients,
  use_wire_dtype,
)


def model_scope(options: Options, cluster: Cluster, container: str, on_ps: bool = True):
  """Returns the scopes of a model: its container, devices, kind of variables, partitions."""
  stack = contextlib.ExitStack()
  device = cluster.task.name
  if on_ps:
    device = replica_device_setter(
      worker_device=cluster.task.name, cluster=cluster.cluster_spec(),
      ps_strategy="greedy") or device
  stack.enter_context(tf.get_default_graph().container(container))
  stack.enter_context(tf.device(device))
  stack.enter_context(resource_variables())
  if options.partition_bytes is not None:
    stack.enter_context(partition_large(options.partition_bytes, max(len(cluster.ps), 1)))
  use_wire_dtype(options.wire_dtype)
  return stack


def build_step(program: Program, cluster: Cluster, shard: Shard, options: Options,
               container: str = "") -> Step:
  """Builds a between-graph replica; `build.build_step` lists its arguments, result and errors."""
  with model_scope(options, cluster, container):
    global_step = tf.train.get_or_create_global_step()
    towers = ProgramTowers(program, options)
    towers.add_worker(shard, options.num_clones)
    devices = devices_here(options.num_clones) if options.num_clones > 1 else [""]
    built = build_clones(towers.loss, devices, towers.optimizers.of_tower())
    towers.optimizers.summarize_learning_rate()
    batches = Batches(
      built.grads_and_vars, built.loss, towers.batch_sizes[0],
      options.gradient_accumulation_steps, shard.range_reports)
    shard.range_reports = batches.range_reports
    build = _synchronous if options.is_synchronous else _asynchronous
    if towers.optimizers.train_op is not None:
      build = _own_update
    step = build(towers, batches, built.update_ops, options, cluster, shard)
    summarize("loss", step.loss)
    if not shard.is_dynamic:  # under --shard=dynamic, the table of ranges keeps the position
      step = step._replace(positions=InputPositions(
        cluster.replica_index, cluster.num_replicas, shard.batch_size, global_step))
    if step.repeats is not None:
      step.repeats.follow(step.positions)
    return batches.complete(step)._replace(
      program_hooks=towers.hooks, hint=towers.optimizers.hint)


def _asynchronous(towers, batches, update_ops, options, cluster, unused_shard) -> Step:
  """Builds an update that the ps makes immediately, unless its gradient is too old."""
  global_step = tf.train.get_global_step()
  begun, ahead = begin_gradient_age(global_step), Prefetch() if options.prefetch else None
  if ahead is not None:
    begun, = ahead.hold([begun])
  arrived = pack_gradients(
    _clipped(batches.grads_and_vars, options.clip_norm), options.pack_bytes, options.wire_dtype)
  optimizers = towers.optimizers
  # Moving averages of batch normalisation and the like are updated with the step.
  with tf.control_dependencies(update_ops):
    train_op, age, taken = async_update.build_update(
      arrived, global_step, optimizers.averaged(optimizers.built[0]),
      optimizers.damped if options.staleness.damp else None, options.staleness.drop, begun)
  fetch_variables(options.pack_bytes, options.wire_dtype, hold=ahead and ahead.hold)
  keep_constants_local()
  # An age that changes the update is exact only if values and global step are read together.
  step = Step(train_op, batches.loss, batches.examples, taken=taken,
              reads_early=options.staleness.drop is None and not options.staleness.damp)
  if ahead is not None:
    step = step._replace(train_op=ahead.with_put(train_op), hooks=[ahead.make_session_run_hook()])
  return _with_age(step, age, options, cluster)


def _own_update(towers, batches, update_ops, options, cluster, unused_shard) -> Step:
  """Builds an update by the program's own training op."""
  global_step = tf.train.get_global_step()
  begun = begin_gradient_age(global_step)
  train_op = own_train_op.build_update(towers.optimizers.train_op, update_ops, global_step)
  age = gradient_age(global_step, begun, train_op)
  fetch_variables(options.pack_bytes)
  keep_constants_local()
  return _with_age(Step(train_op, batches.loss, batches.examples), age, options, cluster)


def _with_age(step, age, options, cluster) -> Step:
  """Adds to an asynchronous step the operation that counts its gradient's age; returns the step."""
  if cluster.num_replicas == 1 and not options.overlaps:  # no gradient can be stale
    return step
  table = AgeTable(tf.train.get_global_step(), cluster.replica_index)
  return step._replace(counted=table.count(age, options.staleness.drop), age_tables=[table])


def _clipped(grads_and_vars, clip_norm) -> list:
  """Returns the pairs that have a gradient; clips the gradients unless `clip_norm` is None."""
  grads_and_vars = [(g, v) for g, v in grads_and_vars if g is not None]
  if clip_norm is not None and grads_and_vars:
    grads_and_vars = clip_gradients(grads_and_vars, clip_norm)
  return grads_and_vars


def _synchronous(towers, batches, update_ops, options, cluster, shard) -> Step:
  """Builds an update by the program's optimizer from the gradients of all workers."""
  optimizer, count = towers.optimizers.built[0], cluster.num_replicas
  if isinstance(optimizer, SyncReplicasOptimizer):
    raise ValueError("the program's optimizer is a SyncReplicasOptimizer: with --sync_replicas the "
                     "program returns the optimizer inside it")
  aggregate = options.replicas_to_aggregate or count
  if aggregate > count:
    raise ValueError("--sync_replicas=%d, but there are %d workers: give a smaller number, or none"
                     % (aggregate, count))
  optimizer = SyncReplicasOptimizer(
    towers.optimizers.averaged(optimizer), aggregate, count, replica_index=cluster.replica_index,
    on_uneven=options.on_uneven, clip_norm=options.clip_norm, pack_bytes=options.pack_bytes,
    wire_dtype=options.wire_dtype)
  remainder, before = None, shared_statistics.share_moves(update_ops, count)
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
