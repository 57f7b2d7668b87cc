"""A job in this process: a ps, if it needs one, and a worker that trains in the test's thread.

It costs a tenth of processes. For options that change what one worker counts, sends or refuses;
tests by processes show beside it that the flags reach the worker.
"""
from __future__ import annotations

import atexit

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tf1ps.cluster import server as server_lib
from tf1ps.pipeline import next_batch
from tf1ps.program import contract
from tf1ps.replication import clones
from tf1ps.training import options as options_lib
from tf1ps.training import worker

_workers = {}  # the first worker, with and without a ps, of so many
_kept = []
_records = {}


def train(input_fn=None, model_fn=None, workers=1, **options):
  """Trains to the end; returns the worker's `Outcome`.

  Args:
    input_fn: the program's; None: 400 records of the line y = 3 x + 2.
    model_fn: the program's; None: the line.
    workers: of the cluster; there are no others than the chief.
    options: fields of `Options`.
  """
  server = _worker(options.get("replication") != "all_reduce", workers)
  server_lib._records.update(_records)  # other tests know of no server: see conftest.py
  program = contract.Program("line", None, input_fn or line_input, model_fn or line_model)
  tf.disable_control_flow_v2()  # as in tf1ps-worker
  return worker.train(program, server, options_lib.Options(**options))


def record(workers=1):
  """The record of the chief's server."""
  return _worker(True, workers).record


def _worker(has_ps, workers):
  """The worker's server, with a ps or without, and two CPU devices for clones."""
  if (has_ps, workers) not in _workers:  # a process cannot stop a server
    counts = {"ps": 1, "worker": workers}
    cluster = {job: harness.addresses(counts[job]) for job in ["ps", "worker"][not has_ps:]}
    config = clones.with_cpu_devices(2)
    for job in cluster:
      _kept.append(tf1ps.Server(cluster, job_name=job, task_index=0, config=config))
      _records.update(server_lib._records)
    _workers[has_ps, workers] = _kept[-1]
    # 1.15's destructor needs what the end of Python takes away.
    atexit.register(_kept.clear)
    atexit.register(_workers.clear)
  return _workers[has_ps, workers]


def line_input(mode, shard, nan_at=None):
  """x in 0 to 1, y = 3 x + 2, of [batch]; record `nan_at` of the training is no number."""
  x = np.arange(400, dtype=np.float32) / 400
  if mode == "train" and nan_at is not None:
    x[nan_at] = np.nan
  return next_batch(shard.dataset(
    tf.data.Dataset.from_tensor_slices((x, 3 * x + 2))).batch(shard.batch_size))


def line_model(features, labels, mode):
  """y = w x + b."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
  return contract.ModelSpec(loss=tf.reduce_mean(tf.square(w * features + b - labels)))
