"""Tests of tf1ps/placement/device_setter.py, beside TensorFlow's own setter."""

from __future__ import annotations

import functools

import pytest
import tensorflow.compat.v1 as tf

from tests.placement.sample_programs import (
  five_variables_program,
  nested_program,
  ops_and_devices,
  shared_program,
  training_program,
  variable_devices,
)
from tf1ps.placement import device_setter
from tf1ps.placement.device_setter import replica_device_setter
from tf1ps.placement.load_balancing import GreedyLoadBalancingStrategy, byte_size_load_fn

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
stock_setter = tf.train.replica_device_setter

CLUSTER = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
SPARSE = {"ps": {1: "a:1", 4: "b:1"}, "worker": ["c:1"]}
WORKER = "/job:worker/task:1"


@KINDS
@pytest.mark.parametrize("setter", [stock_setter, replica_device_setter], ids=["stock", "ours"])
def test_five_variables_and_inner_devices(setter, use_resource):
  setter = functools.partial(setter, ps_tasks=2)
  assert variable_devices(setter, five_variables_program, use_resource) == [
      "/job:ps/task:%d" % task for task in [0, 1, 0, 1, 0]]
  devices = ops_and_devices(setter, five_variables_program, use_resource)
  assert [devices[name] for name in ["s", "p1", "p2"]] == [
      "/job:worker", "/job:worker/task:1", "/job:worker/device:CPU:0"]


ARGUMENTS = [
    dict(ps_tasks=2),
    dict(ps_tasks=3, worker_device=WORKER),
    dict(cluster=CLUSTER, worker_device="/job:worker/task:1/gpu:0", ps_device="/job:ps/cpu:0"),
    dict(cluster={"ps": {0: "a:1", 1: "b:1"}}),
    dict(ps_tasks=2, merge_devices=False),
    dict(ps_tasks=2, ps_device=""),
    dict(ps_tasks=2, ps_device="/cpu:0"),
    dict(ps_tasks=2, worker_device=""),
    dict(ps_tasks=2, ps_ops=["Const", "VarHandleOp"]),
    dict(ps_tasks=2, ps_strategy=lambda op: len(op.name) % 2),
    dict(ps_tasks=3, ps_device="/job:params", ps_ops=("VariableV2",)),
]


# The nested program takes ten times as long as the others.
@KINDS
@pytest.mark.parametrize("program", [
    five_variables_program, training_program, shared_program,
    pytest.param(nested_program, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: " ".join(arguments))
def test_every_op_lands_where_stock_puts_it(arguments, program, use_resource):
  ours = ops_and_devices(
      functools.partial(replica_device_setter, **arguments), program, use_resource)
  stock = ops_and_devices(functools.partial(stock_setter, **arguments), program, use_resource)
  assert ours == stock


@pytest.mark.parametrize("arguments, use_resource", [
    (ARGUMENTS[1], True), (ARGUMENTS[2], False), (ARGUMENTS[4], True), (ARGUMENTS[8], True)])
def test_every_op_of_a_nested_program_lands_where_stock_puts_it(arguments, use_resource):
  test_every_op_lands_where_stock_puts_it(arguments, nested_program, use_resource)


def test_takes_node_defs_like_stock():
  names = device_setter.DEFAULT_PS_OPS | {"MatMul", "FIFOQueueV2", "HashTableV2"}
  ours, stock = replica_device_setter(2), stock_setter(2)
  # Of all these, stock 1.15 lacks this one.
  for name in sorted(names - {"DecisionTreeResource"}):
    node = tf.NodeDef(name="n", op=name, device="/cpu:0")
    assert ours(node) == stock(node)


@KINDS
def test_sparse_ps_use_their_indices(use_resource):
  def devices(setter):
    return variable_devices(functools.partial(setter, cluster=SPARSE), five_variables_program,
                            use_resource)

  assert devices(stock_setter) == ["/job:ps/task:%d" % task for task in [0, 1, 0, 1, 0]]
  assert devices(replica_device_setter) == [
      "/job:ps/task:%d" % task for task in [1, 4, 1, 4, 1]]


@KINDS
@pytest.mark.parametrize("strategy", [
    "greedy", GreedyLoadBalancingStrategy], ids=["by name", "as callable"])
def test_greedy_counts_the_bytes_of_global_variables_only(strategy, use_resource):
  def build():
    tf.get_variable("a", [10])  # loads 40, 0
    tf.get_local_variable("local", [1000])
    tf.get_variable("b", [4])  # 40, 16
    tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)  # 40, 16
    tf.get_variable("c", [6])  # 40, 40
    tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)
    tf.get_variable("d", [1])  # 44, 40
    tf.get_variable("e", [1])

  if strategy is GreedyLoadBalancingStrategy:
    strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
  setter = functools.partial(replica_device_setter, cluster=SPARSE, ps_strategy=strategy)
  assert variable_devices(setter, build, use_resource) == [
      "/job:ps/task:1", "/job:worker", "/job:ps/task:4", "/job:ps/task:4", "/job:ps/task:4",
      "/job:ps/task:1", "/job:ps/task:1", "/job:ps/task:4"]


@KINDS
def test_greedy_counts_no_bytes_of_an_unknown_shape(use_resource):
  def build():
    initial = tf.placeholder(tf.float32, [None])
    for name in "ab":
      tf.get_variable(name, initializer=initial, validate_shape=False)  # loads 0, 0
    tf.get_variable("c", [10])  # 40, 0
    tf.get_variable("d", initializer=initial, validate_shape=False)

  setter = functools.partial(replica_device_setter, cluster=SPARSE, ps_strategy="greedy")
  assert variable_devices(setter, build, use_resource) == [
    "/job:ps/task:1", "/job:ps/task:1", "/job:ps/task:1", "/job:ps/task:4"]


@KINDS
def test_slots_land_with_their_variable(use_resource):
  with tf.Graph().as_default():
    with tf.device(replica_device_setter(3, ps_strategy="greedy")):
      variables = [tf.get_variable("v%d" % n, [n + 1], use_resource=use_resource)
                   for n in range(3)]
      optimizer = tf.train.AdamOptimizer()
      optimizer.minimize(tf.add_n([tf.reduce_sum(v) for v in variables]))
    for task, variable in enumerate(variables):
      for slot in optimizer.get_slot_names():
        assert optimizer.get_slot(variable, slot).device == "/job:ps/task:%d" % task


@pytest.mark.parametrize("arguments", [
    dict(),
    dict(ps_tasks=0),
    dict(cluster={"worker": ["a:1"]}),
    dict(cluster={"ps": [], "worker": ["a:1"]}),
    dict(cluster=CLUSTER, ps_device="/job:params"),
    dict(cluster=CLUSTER, ps_device=""),
    dict(ps_tasks=2, cluster={"worker": ["a:1"]}),
], ids=lambda arguments: " ".join(arguments))
def test_without_ps_it_is_none_like_stock(arguments):
  assert stock_setter(**arguments) is None
  assert replica_device_setter(**arguments) is None


@pytest.mark.parametrize("convert", [
    dict, tf.train.ClusterSpec, lambda spec: tf.train.ClusterSpec(spec).as_cluster_def()])
def test_takes_every_kind_of_cluster(convert):
  setter = functools.partial(replica_device_setter, cluster=convert(SPARSE))
  assert variable_devices(setter, lambda: tf.get_variable("v", [1]), True) == ["/job:ps/task:1"]


@pytest.mark.parametrize("error, message, arguments", [
    (ValueError, "ps_tasks must be at least 0, got -1", dict(ps_tasks=-1)),
    (TypeError, "ps_tasks must be .* got '2'", dict(ps_tasks="2")),
    (TypeError, "worker_device must be a device string .* got 3", dict(worker_device=3)),
    (ValueError, "worker_device='/jobs:w' is not a device string", dict(worker_device="/jobs:w")),
    (ValueError, "ps_device='ps' is not a device string", dict(ps_device="ps")),
    (TypeError, "ps_ops must be a list .* got 'VarHandleOp'", dict(ps_ops="VarHandleOp")),
    (TypeError, "ps_ops must be a list .* got \\[1\\]", dict(ps_ops=[1])),
    (ValueError, "ps_strategy='gredy' .* one of greedy, round_robin", dict(ps_strategy="gredy")),
    (TypeError, "ps_strategy must be callable.* got 7", dict(ps_strategy=7)),
    (TypeError, None, dict(cluster="a:1,b:1")),
])
def test_arguments_are_checked(error, message, arguments):
  with pytest.raises(error, match=message):
    replica_device_setter(**arguments)


@pytest.mark.parametrize("result, error, message", [
    (2, ValueError, "position of a ps task, 0 to 1; for v it returned 2"),
    (-1, ValueError, "0 to 1; for v it returned -1"),
    ("/job:ps", TypeError, "an integer; for v it returned '/job:ps'"),
])
def test_what_a_strategy_returns_is_checked(result, error, message):
  with tf.Graph().as_default(), tf.device(replica_device_setter(2, ps_strategy=lambda op: result)):
    with pytest.raises(error, match=message):
      tf.get_variable("v", [1])
