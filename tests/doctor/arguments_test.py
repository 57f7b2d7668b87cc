"""The rules know arguments by their positions: these are those of the real functions."""
from __future__ import annotations

import functools
import inspect

import pytest
import tensorflow.compat.v1 as tf

# {function: {argument: the position that the rules use}}
POSITIONS = {
  "FIFOQueue": {"capacity": 0, "shared_name": 4},
  "InteractiveSession": {"config": 2},
  "PaddingFIFOQueue": {"shared_name": 4},
  "PriorityQueue": {"shared_name": 4},
  "RandomShuffleQueue": {"capacity": 0, "min_after_dequeue": 1, "shared_name": 6},
  "Session": {"target": 0, "graph": 1, "config": 2},
  "Session.reset": {"containers": 1},
  "Session.run": {"options": 2},
  "Variable": {"collections": 2, "name": 5},
  "container": {"container_name": 0},
  "device": {"device_name_or_function": 0},
  "fixed_size_partitioner": {"axis": 1},
  "get_variable": {"name": 0, "collections": 6, "partitioner": 8},
  "min_max_variable_partitioner": {"axis": 1},
  "nn.embedding_lookup": {"partition_strategy": 2},
  "nn.embedding_lookup_sparse": {"partition_strategy": 3},
  "summary.FileWriter": {"logdir": 0},
  "train.ChiefSessionCreator": {"master": 1, "config": 2},
  "train.ClusterSpec": {"cluster": 0},
  "train.MonitoredTrainingSession": {
    "master": 0, "checkpoint_dir": 2, "save_checkpoint_secs": 6, "config": 9, "max_wait_secs": 12,
    "save_checkpoint_steps": 13},
  "train.Optimizer.apply_gradients": {"global_step": 1},
  "train.Optimizer.minimize": {"global_step": 1},
  "train.Server": {"server_or_cluster_def": 0, "task_index": 2, "config": 4},
  "train.Supervisor": {"logdir": 7, "summary_op": 8, "saver": 9, "recovery_wait_secs": 13},
  "train.Supervisor.managed_session": {"config": 1},
  "train.Supervisor.prepare_or_wait_for_session": {"master": 0, "config": 1, "max_wait_secs": 3},
  "train.SyncReplicasOptimizer": {"replicas_to_aggregate": 1, "total_num_replicas": 2},
  "train.SyncReplicasOptimizer.get_init_tokens_op": {"num_tokens": 0},
  "train.SyncReplicasOptimizer.make_session_run_hook": {"num_tokens": 1},
  "train.WorkerSessionCreator": {"master": 1, "config": 2},
  "train.input_producer": {"num_epochs": 2},
  "train.limit_epochs": {"num_epochs": 1},
  "train.range_input_producer": {"num_epochs": 1},
  "train.replica_device_setter": {"ps_tasks": 0, "worker_device": 2, "cluster": 4},
  "train.shuffle_batch": {"capacity": 2, "min_after_dequeue": 3},
  "train.shuffle_batch_join": {"capacity": 2, "min_after_dequeue": 3},
  "train.slice_input_producer": {"num_epochs": 1},
  "train.start_queue_runners": {"coord": 1},
  "train.string_input_producer": {"num_epochs": 1},
  "variable_axis_size_partitioner": {"axis": 1},
  "variable_scope": {"partitioner": 6},
}


@pytest.mark.parametrize("name", POSITIONS)
def test_the_positions_of_arguments(name):
  function = functools.reduce(getattr, name.split("."), tf)
  names = list(inspect.signature(
    function.__init__ if inspect.isclass(function) else function).parameters)
  names = [each for each in names if each not in ("self", "cls")]
  assert {each: names.index(each) for each in POSITIONS[name]} == POSITIONS[name]
