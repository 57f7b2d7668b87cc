"""In-graph replication of a program: the chief's graph has a tower on each worker.

The other workers are servers that wait for work. The batches take these steps:

1. Each worker reads its own share of the data and computes its gradients on values read from the
   ps. If input_fn calls Python, only the chief's process can run it: the chief reads all shares and
   sends the batches to the workers.
2. Synchronous: the mean of all gradients makes one update, in one run of the chief. Training ends
   when the data of any worker end.
3. Asynchronous: each worker's gradient makes its own update. The training loop runs the steps of
   the first worker, and one thread per further worker runs its steps (parallel_steps.py).
"""

from __future__ import annotations

import logging
from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.compat import new_graph
from tf1ps.pipeline import has_python_calls
from tf1ps.program import Program, build_input
from tf1ps.replication import (
  AgeTable,
  begin_gradient_age,
  build_in_graph_asynchronous,
  build_in_graph_synchronous,
  devices_here,
  gradient_age,
)
from tf1ps.training import between_graph
from tf1ps.training import options as options_lib
from tf1ps.training.program_towers import ProgramTowers
from tf1ps.training.step import Step, summarize
from tf1ps.transfer import fetch_variables, keep_constants_local

_log = logging.getLogger("tf1ps")


def build_step(program: Program, cluster: Cluster, options: options_lib.Options,
               container: str = "") -> Step:
  """Builds the chief's graph, with towers on all workers; see `build.build_step`."""
  with between_graph.model_scope(options, cluster, container):
    global_step = tf.train.get_or_create_global_step()
    towers = ProgramTowers(program, options)
    for shard, device in _inputs(program, cluster, options):
      with tf.device(device):
        towers.add_worker(shard, options.num_clones)
    local = devices_here(options.num_clones) if options.num_clones > 1 else [""]
    devices = [worker.name + device for worker in cluster.replicas for device in local]
    build = _synchronous if options.is_synchronous else _asynchronous
    step = build(towers, devices, global_step, options)
    fetch_variables(options.pack_bytes, options.wire_dtype)
    keep_constants_local()
    towers.optimizers.summarize_learning_rate()
    summarize("loss", step.loss)
    return step._replace(program_hooks=towers.hooks, hint=towers.optimizers.hint)


def _inputs(program, cluster, options) -> List[tuple]:
  """Returns the share of each worker and the device that reads it."""
  workers = cluster.replicas

  def share(index):
    return options_lib.shard_of(options, index, len(workers))

  devices = [worker.name for worker in workers]
  if len(workers) > 1:
    with new_graph() as graph:
      for index in range(len(workers)):  # the workers' pipelines may differ
        build_input(program, "train", share(index))
    if has_python_calls(graph):
      devices = [cluster.task.name] * len(workers)
      _log.info("input_fn calls Python, so the chief reads the data of all workers")
  return [(share(index), device) for index, device in enumerate(devices)]


def _synchronous(towers, devices, global_step, options) -> Step:
  built = build_in_graph_synchronous(
    towers.loss, devices, towers.optimizers.of_tower(), global_step, options.clip_norm,
    pack_bytes=options.pack_bytes, wire_dtype=options.wire_dtype)
  sizes = [tf.cast(size, tf.int32) for size in towers.batch_sizes]
  return Step(built.train_op, built.loss, tf.add_n(sizes, name="batch_examples"))


def _asynchronous(towers, devices, global_step, options) -> Step:
  built = build_in_graph_asynchronous(
    towers.loss, devices, towers.optimizers.of_tower, global_step, options.clip_norm,
    pack_bytes=options.pack_bytes, wire_dtype=options.wire_dtype)
  steps = [Step(update.train_op, update.loss, size)
           for update, size in zip(built, towers.batch_sizes)]
  if len(steps) == 1:
    return steps[0]
  tables = [AgeTable(global_step, index) for index in range(len(steps))]
  steps = [step._replace(counted=table.count(gradient_age(
    global_step, begin_gradient_age(global_step), step.train_op)), age_tables=tables)
           for step, table in zip(steps, tables)]
  others = {device: step._replace(step_after=_after(global_step, step.train_op))
            for device, step in list(zip(devices, steps))[1:]}
  return steps[0]._replace(others=others)


def _after(global_step, train_op):
  """Returns the global step after an update."""
  with tf.control_dependencies([train_op]), tf.get_default_graph().colocate_with(global_step.op):
    return tf.identity(global_step.read_value(), name="step_after")
