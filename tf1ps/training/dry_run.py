"""A dry run: makes one step of a program on one batch in this process, and keeps nothing.

`make_dry_run` first builds worker 0's step of the whole job without running it, so that errors of
the build show. Then it builds the step of a single asynchronous worker without devices, which an
ordinary session runs: no server, no other task, no file.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import from_cluster_spec
from tf1ps.compat import new_graph
from tf1ps.graph import says_building
from tf1ps.pipeline import SHARD_DYNAMIC, iterator_initializers, use_bad_records
from tf1ps.program import Program, ProgramError, try_evaluation
from tf1ps.training import build
from tf1ps.training import options as options_lib
from tf1ps.training.outcome import NanLossError

# The options that apply only to a job of several workers or several runs.
_OF_SEVERAL = ("replication", "num_clones", "sync_replicas", "on_uneven",
               "staleness_policy", "partition_bytes", "overlap", "gradient_accumulation_steps",
               "checkpoint_dir", "trace_steps")


class DryRun(NamedTuple):
  """The results of a dry run."""

  inputs: Dict[str, str]  # {"features": "float32 [32, 64]"}
  variables: List[tf.Variable]  # the trainable variables
  loss: float  # of the batch, before the update
  has_own_update: bool  # whether the program brings an optimizer or a training op


def make_dry_run(program: Program, options: options_lib.Options, num_ps: int,
                 num_workers: int) -> DryRun:
  """Makes one step of a program, and tries its evaluation on one batch.

  Args:
    program: the user's program.
    options: the job's options.
    num_ps: the number of the job's ps, 0 or more.
    num_workers: the number of its workers, 1 or more.

  Raises:
    ProgramError: the data have no batch.
    NanLossError: the loss is NaN.
    The errors of `build_step`, of `try_evaluation`, and of the step.
  """
  bad_records = options_lib.bad_records_of(options)
  batch_size = options_lib.first_batch_size(options.batch_size)
  try_evaluation(program, batch_size, bad_records)
  with new_graph() as graph, says_building(graph):
    build.build_step(program, _cluster(num_ps, num_workers),
                     options_lib.shard_of(options, 0, num_workers), options)
  alone = options._replace(
    batch_size=batch_size, steps_per_execution=1,
    shard=None if options.shard == SHARD_DYNAMIC else options.shard,
    **{name: options_lib.BY_NAME[name].default for name in _OF_SEVERAL})
  drawn: Dict[str, Any] = {}
  specs = []

  def model_fn(features, labels, mode):
    drawn.update(_named("features", features), **_named("labels", labels))
    specs.append(program.model_fn(features, labels, mode))
    return specs[-1]

  with new_graph() as graph, tf.device(lambda op: ""):
    with says_building(graph):
      use_bad_records(bad_records)
      step = build.build_step(
        program._replace(model_fn=model_fn), _cluster(1, 1), options_lib.shard_of(alone, 0, 1),
        alone)
    variables, results = tf.trainable_variables(), None
    with tf.train.MonitoredSession(_SessionCreator(graph, options.config),
                                   hooks=list(step.program_hooks)) as session:
      results = session.run({"step": step.train_op, "loss": step.loss, "inputs": drawn})
  if results is None:  # at the end of the data, a MonitoredSession ends without an error
    raise ProgramError("input_fn gives no batch in mode \"train\"")
  if np.isnan(results["loss"]):
    raise NanLossError(0, 1)
  is_own = specs[0].optimizer is not None or specs[0].train_op is not None
  return DryRun({name: _describe(value) for name, value in results["inputs"].items()}, variables,
                float(results["loss"]), is_own)


class _SessionCreator(tf.train.SessionCreator):
  """Creates a session in this process; initialises the variables, tables and iterators."""

  def __init__(self, graph: tf.Graph, config):
    tables = tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
    self._config, self._initialisers = config, [
      tf.global_variables_initializer(), [tf.local_variables_initializer(), *tables],
      iterator_initializers(graph, tables)]

  def create_session(self):
    session = tf.Session(config=self._config)
    for initialiser in self._initialisers:
      session.run(initialiser)
    return session


def _cluster(num_ps: int, num_workers: int):
  """Returns a cluster whose servers never start, with worker 0 as this task."""
  jobs = {"ps": num_ps, "worker": num_workers}
  return from_cluster_spec({job: ["%s%d:1" % (job, index) for index in range(count)]
                            for job, count in jobs.items() if count}, "worker", 0)


def _named(name: str, tensors) -> Dict[str, Any]:
  """Returns the tensors of a structure by their names."""
  if tensors is None:
    return {}
  if isinstance(tensors, dict):
    parts = [("%s[%r]" % (name, key), tensors[key]) for key in sorted(tensors)]
  elif isinstance(tensors, (list, tuple)):
    parts = [("%s[%d]" % (name, key), tensor) for key, tensor in enumerate(tensors)]
  else:
    return {name: tensors}
  return {key: tensor for part in parts for key, tensor in _named(*part).items()}


def _describe(value) -> str:
  """Returns the type and the shape of a fetched value."""
  if hasattr(value, "dense_shape"):
    return "%s %s, sparse" % (value.values.dtype, list(map(int, value.dense_shape)))
  if isinstance(value, np.ndarray):
    return "%s %s" % ("string" if value.dtype == object else value.dtype, list(value.shape))
  return type(value).__name__
