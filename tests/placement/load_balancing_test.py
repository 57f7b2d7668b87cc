"""Tests of tf1ps/placement/load_balancing.py."""

from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement.load_balancing import (
  GreedyLoadBalancingStrategy,
  RandomStrategy,
  RoundRobinStrategy,
  byte_size_load_fn,
)

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
OP_TYPES = {False: "VariableV2", True: "VarHandleOp"}

# The layers of a 784-1024-1024-10 network: weights and biases, in the order of their making.
NETWORK = [[784, 1024], [1024], [1024, 1024], [1024], [1024, 10], [10]]
EMBEDDINGS = [[100000, 32], [32]] * 4


@pytest.fixture(autouse=True)
def graph():
  """A graph of its own for each test."""
  with tf.Graph().as_default() as g:
    yield g


def bytes_by_task(strategy, shapes, use_resource, num_tasks=2):
  """Places float32 variables by the stock setter with `strategy`; returns bytes by ps task."""
  loads = [0] * num_tasks
  with tf.device(tf.train.replica_device_setter(num_tasks, ps_strategy=strategy)):
    for index, shape in enumerate(shapes):
      variable = tf.get_variable("v%d" % index, shape, use_resource=use_resource)
      assert variable.op.type == OP_TYPES[use_resource]
      task = tf.DeviceSpec.from_string(variable.device).task
      loads[task] += 4 * variable.shape.num_elements()
  return loads


def test_round_robin_counts():
  strategy = RoundRobinStrategy(3)
  assert [strategy(None) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_greedy_gives_to_the_least_loaded_and_of_several_to_the_lowest():
  strategy = GreedyLoadBalancingStrategy(3, load_fn=lambda op: op)
  # The loads before each call: 000, 500, 530, 532, 534, 554, 555.
  assert [strategy(load) for load in [5, 3, 2, 2, 2, 1, 7]] == [0, 1, 2, 2, 1, 2, 0]


def test_greedy_counts_nothing_when_the_load_is_not_known():
  def load_fn(op):
    if op is None:
      raise ValueError("unknown")
    return op

  strategy = GreedyLoadBalancingStrategy(2, load_fn)
  with pytest.raises(ValueError, match="unknown"):
    strategy(None)
  assert [strategy(1), strategy(1)] == [0, 1]


@KINDS
@pytest.mark.parametrize("shape, dtype, size", [
    ([], tf.float32, 4),
    ([0, 7], tf.float32, 0),
    ([3, 5], tf.float32, 60),
    ([3, 5], tf.float64, 120),
    ([3, 5], tf.float16, 30),
    ([2], tf.int64, 16),
    ([7], tf.bool, 7),
    ([2], tf.string, 16),
])
def test_byte_size(use_resource, shape, dtype, size):
  variable = tf.get_variable("v", shape, dtype, use_resource=use_resource,
                             initializer=tf.zeros_initializer())
  assert variable.op.type == OP_TYPES[use_resource]
  assert byte_size_load_fn(variable.op) == size


@KINDS
def test_byte_size_of_unknown_shape_names_the_variable(use_resource):
  initial = tf.placeholder(tf.float32, [None, 3])
  variable = tf.get_variable("scope/v", initializer=initial, validate_shape=False,
                             use_resource=use_resource)
  with pytest.raises(ValueError, match=r"variable scope/v has the shape .*round robin"):
    byte_size_load_fn(variable.op)


def test_byte_size_of_other_ops_is_0():
  assert byte_size_load_fn(tf.constant([1.0, 2.0]).op) == 0


@KINDS
def test_byte_size_takes_ops_only(use_resource):
  variable = tf.get_variable("v", [2], use_resource=use_resource)
  with pytest.raises(TypeError, match="the .op of a variable"):
    byte_size_load_fn(variable)


@KINDS
def test_bytes_of_a_network_on_two_ps(use_resource):
  greedy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
  assert bytes_by_task(greedy, NETWORK, use_resource) == [3256360, 4198400]


@KINDS
def test_bytes_of_a_network_on_two_ps_by_round_robin(use_resource):
  assert bytes_by_task(RoundRobinStrategy(2), NETWORK, use_resource) == [7446528, 8232]


@KINDS
def test_bytes_of_embeddings_on_two_ps(use_resource):
  greedy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
  assert bytes_by_task(greedy, EMBEDDINGS, use_resource) == [25600256, 25600256]


@KINDS
def test_bytes_of_embeddings_on_two_ps_by_round_robin(use_resource):
  assert bytes_by_task(RoundRobinStrategy(2), EMBEDDINGS, use_resource) == [51200000, 512]


@pytest.mark.parametrize("make", [
    RoundRobinStrategy, lambda n: GreedyLoadBalancingStrategy(n, byte_size_load_fn)])
def test_num_tasks_is_checked(make):
  with pytest.raises(ValueError, match="num_tasks must be at least 1, got 0"):
    make(0)
  with pytest.raises(TypeError, match="num_tasks must be .* got '2'"):
    make("2")
  with pytest.raises(TypeError, match="num_tasks must be .* got True"):
    make(True)


def test_load_fn_is_checked():
  with pytest.raises(TypeError, match="load_fn must be callable.* got 7"):
    GreedyLoadBalancingStrategy(2, 7)


@pytest.mark.parametrize("seed, tasks", [(0, [1, 2, 1, 2, 2]), (7, [1, 0, 2, 1, 2])])
def test_a_random_strategy_goes_by_the_name_as_on_tensorflow_1_15(seed, tasks):
  strategy = RandomStrategy(3, seed)
  assert [strategy(tf.Variable(0, name="v%d" % i).op) for i in range(5)] == tasks
