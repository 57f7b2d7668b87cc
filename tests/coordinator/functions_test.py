from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.coordinator import FunctionError, PerWorkerDataset, PerWorkerValues
from tf1ps.coordinator.functions import Builder, split


def builder(**options):
  return Builder(tf.Graph(), "/job:ps/task:0", "/job:worker/task:0/cpu:0", **options)


def run(built, values, graph):
  with tf.Session(graph=graph, config=tf.ConfigProto(allow_soft_placement=True)) as session:
    return built.pack(session.run(built.fetches, dict(zip(built.placeholders, values))))


@pytest.mark.parametrize("value, dtype, rank", [
  (1, "int32", 0), (2**40, "int64", 0), (1.5, "float32", 0), (np.float64(1.5), "float64", 0),
  (True, "bool", 0), ("a", "string", 0), (b"a", "string", 0), (np.array(["ab", "c"]), "string", 1),
  (np.zeros([2, 3], np.float32), "float32", 2), (np.array([], np.int64), "int64", 1)])
def test_a_value_is_fed_by_its_type_and_rank(value, dtype, rank):
  signature, values = split(len, (value,), None)
  assert signature.parts == ((dtype, rank),) and len(values) == 1


def test_calls_that_differ_in_values_only_share_a_graph():
  def keys(*args, **kwargs):
    return split(len, args, kwargs)[0].key

  assert keys(1, [2, 3.5], a="x") == keys(7, (8, 0.5), a="yz")
  assert len({keys(1), keys(1.5), keys(1, 2), keys((1, 2)), keys(a=1), keys(np.zeros(2))}) == 6


def test_a_function_gets_its_arguments_and_gives_its_structure():
  def step(pair, factor, *, name):
    first, rest = pair
    return {"sum": first + rest["b"], "name": name + "", "both": (first * factor, None)}

  make = Builder(tf.Graph(), "", "/cpu:0")
  signature, values = split(step, ([1, {"b": np.array([1, 2], np.int32)}], 3), {"name": "n"})
  result = run(make.build(signature), values, make.graph)
  assert list(result["sum"]) == [2, 3] and result["name"] == b"n" and result["both"] == (3, None)
  assert make.build(split(step, ((5, {"b": np.array([0], np.int32)}), 1), {"name": ""})[0]) is (
    make.build(signature))


@pytest.mark.parametrize("value, said", [
  (object(), "pass numbers, strings, NumPy arrays or per-worker values"),
  (None, "pass numbers, strings"),
])
def test_an_argument_that_cannot_be_fed_is_refused(value, said):
  with pytest.raises(FunctionError, match=said):
    split(len, (value,), None)


def test_a_tensor_of_another_graph_is_refused():
  with tf.Graph().as_default(), pytest.raises(FunctionError, match="belongs to one graph"):
    split(len, (tf.constant(1),), None)
  with pytest.raises(FunctionError, match="the first argument must be a function, got 3"):
    split(3, (), None)


@pytest.mark.parametrize("result, said", [
  (lambda: None, "returns nothing, so nothing would run"),
  (lambda: 3, "returns 3: return dense tensors"),
  (lambda: tf.SparseTensor([[0]], [1], [2]), "return dense tensors"),
])
def test_a_function_without_a_useful_result_is_refused(result, said):
  with pytest.raises(FunctionError, match=said):
    builder().build(split(result, (), None)[0])


def test_a_new_variable_after_the_start_is_refused():
  def step():
    return tf.get_variable("late", [], initializer=tf.zeros_initializer()) + 1

  builder(variables={"late"}).build(split(step, (), None)[0])
  with pytest.raises(FunctionError, match="step makes the variable late, which has no value"):
    builder(variables={"early"}).build(split(step, (), None)[0])


def test_functions_share_variables_by_name_and_divide_them():
  def table():
    return tf.get_variable("table", [9, 20], initializer=tf.zeros_initializer())

  def first():
    return tf.nn.embedding_lookup(list(table()), [0, 8], partition_strategy="div")

  def second():
    return tf.reduce_sum(tf.convert_to_tensor(table()))

  make = builder(partitioner=tf.fixed_size_partitioner(2))
  make.build(split(first, (), None)[0])
  make.build(split(second, (), None)[0])
  variables = make.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
  assert [tuple(v.shape.as_list()) for v in variables] == [(5, 20), (4, 20)]


def test_a_per_worker_value_is_built_once_in_each_graph():
  built = []
  values = PerWorkerValues(lambda: built.append(tf.get_default_graph()) or tf.constant(7))
  for make in (builder(), builder()):
    for function in (lambda x: x + 1, lambda x: x + 2):
      make.build(split(function, (values,), None)[0])
    assert built[-1] is make.graph
  assert len(built) == 2


def test_the_elements_of_a_per_worker_dataset_are_on_the_workers():
  iterator = iter(PerWorkerDataset(lambda: tf.data.Dataset.range(3)))
  with pytest.raises(FunctionError, match="call get_next\\(\\) on it in the function"):
    next(iterator)
  with pytest.raises(TypeError, match="needs a function that returns a tf.data.Dataset, got 3"):
    PerWorkerDataset(3)


def test_a_result_is_kept_until_it_is_taken():
  def step(x):
    return {"twice": x * 2, "made": tf.no_op(), "text": tf.constant("t")}

  make = Builder(tf.Graph(), "", "/cpu:0")
  signature, _ = split(step, (1,), None)
  built, kept = make.build(signature), make.build_kept(signature)
  assert make.build_kept(signature) is kept
  with tf.Session(graph=make.graph) as session:
    for number in (1, 2):
      session.run(kept.put, {built.placeholders[0]: 10 * number, kept.number: number})
    assert built.pack(session.run(kept.take, {kept.number: 2})) == {
      "twice": 40, "made": None, "text": b"t"}
    session.run(kept.clear)
