"""A program as users write it, with the types that a type checker must find in it.

`make lint` lets mypy read it, and nothing runs it. If a public name has no type, `assert_type`
fails, and `type: ignore` has no error to ignore, which is an error, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, TextIO, Tuple

import tensorflow.compat.v1 as tf

import tf1ps
import tf1ps.v1 as legacy_tf
from tf1ps.cluster import BoundedSession, Cluster, Task, resolve_cluster
from tf1ps.coordinator import RemoteValue
from tf1ps.launch import find_free_addresses
from tf1ps.pipeline import Shard
from tf1ps.session import MonitoredSession
from tf1ps.state import Barrier, QueueEmpty, QueueError
from tf1ps.training import Outcome
from tf1ps.transfer import PackedOptimizer

if TYPE_CHECKING:
  from typing_extensions import assert_type


def input_fn(mode: str, shard: Shard) -> Tuple[tf.Tensor, tf.Tensor]:
  assert_type(shard.dataset(tf.data.Dataset.range(3)), Any)
  return tf.constant(0), tf.constant(0)


def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str) -> tf1ps.ModelSpec:
  spec = tf1ps.ModelSpec(loss=features, learning_rat=0.1)  # type: ignore[call-arg]
  assert_type(spec, tf1ps.ModelSpec)
  return spec


def launch(log: TextIO) -> None:
  assert_type(tf1ps.__version__, str)
  assert_type(tf1ps.run_local("program.py", output=log, num_workers=2).global_step, int)
  tf1ps.run_local(3)  # type: ignore[arg-type]
  tf1ps.main("--steps=3")  # type: ignore[arg-type]
  assert_type(tf1ps.evaluate((input_fn, model_fn), "run").metrics, Dict[str, float])
  assert_type(tf1ps.predict("program.py", "run", input="new.csv").examples, int)
  assert_type(tf1ps.export("program.py", "run", output="model").inputs, Dict[str, str])
  tf1ps.export("program.py", "run")  # type: ignore[call-arg]
  with tf1ps.local_cluster(num_ps=1, num_workers=2) as cluster:
    assert_type(cluster.train((input_fn, model_fn)), Outcome)
  assert_type(find_free_addresses(2), List[str])


def start_server(addresses: Dict[str, List[str]]) -> tf1ps.Server:
  server = tf1ps.Server(addresses, job_name="ps", task_index=0, container=None)
  assert_type(server.cluster, Cluster)
  assert_type(server.cluster.task, Task)
  assert_type(server.cluster.task.index, int)
  tf1ps.Server(addresses, task_index="0")  # type: ignore[arg-type]
  tf1ps.Server(addresses, grace_secs=3)  # type: ignore[call-arg]
  return server


def place(op: tf.Operation) -> None:
  strategy = tf1ps.GreedyLoadBalancingStrategy(2, tf1ps.byte_size_load_fn)
  assert_type(strategy(op), int)
  assert_type(tf1ps.replica_device_setter(ps_tasks=2, ps_strategy=strategy),
              Optional[Callable[[Any], str]])
  tf1ps.replica_device_setter(ps_tasks="2")  # type: ignore[arg-type]


def train(server: tf1ps.Server, loss: tf.Tensor) -> None:
  optimizer = tf1ps.SyncReplicasOptimizer(tf.train.AdamOptimizer(), replicas_to_aggregate=2)
  assert_type(optimizer.compute_gradients(loss), List[Tuple[Any, ...]])
  inner = PackedOptimizer(tf.train.AdamOptimizer())
  tf1ps.SyncReplicasOptimizer(inner, "2")  # type: ignore[arg-type]
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=True, hooks=[]) as session:
    session.run(loss)
  assert_type(tf1ps.MonitoredTrainingSession(), MonitoredSession)
  tf1ps.MonitoredTrainingSession(hooks=3)  # type: ignore[arg-type]
  supervisor = tf1ps.Supervisor(logdir="checkpoints", save_model_secs=60)
  assert_type(supervisor.should_stop(), bool)
  with supervisor.managed_session(server.target) as supervised:
    assert_type(supervised.should_stop(), bool)
  tf1ps.Supervisor(logdir=3)  # type: ignore[arg-type]


def queues(session: BoundedSession) -> None:
  for queue in (tf1ps.FIFOQueue(10, [tf.int32]), tf1ps.PaddingFIFOQueue(10, [tf.int32], [[None]]),
                tf1ps.PriorityQueue(10, [tf.int32]), tf1ps.RandomShuffleQueue(10, 2, [tf.int32])):
    assert_type(queue.container, str)
  tf1ps.FIFOQueue("10", [tf.int32])  # type: ignore[arg-type]
  tf1ps.PaddingFIFOQueue("10", [tf.int32], [[]])  # type: ignore[arg-type]
  tf1ps.PriorityQueue("10", [tf.int32])  # type: ignore[arg-type]
  tf1ps.RandomShuffleQueue(10, "2", [tf.int32])  # type: ignore[arg-type]
  coordinator = tf1ps.Coordinator()
  threads = tf1ps.start_queue_runners(session, coordinator)
  assert_type(threads[0].is_alive(), bool)
  assert_type(coordinator.should_stop(), bool)
  try:
    assert_type(Barrier("start", 2, 0).wait(session, timeout=3), List[int])
  except QueueEmpty as error:
    caught: QueueError = error
    ours: tf1ps.Error = caught
    raise ours from None


def coordinate(server: tf1ps.Server) -> None:
  with tf1ps.ClusterCoordinator(server) as coordinator:
    assert_type(coordinator.schedule(input_fn, args=("train",)), RemoteValue)
    coordinator.join(timeout="3")  # type: ignore[arg-type]
  assert_type(resolve_cluster().tasks("ps"), List[Task])


def legacy(addresses: Dict[str, List[str]]) -> None:  # a checker lets TensorFlow's names pass
  assert_type(legacy_tf.train.Server(addresses).target, Any)
  assert_type(legacy_tf.constant(1), Any)
