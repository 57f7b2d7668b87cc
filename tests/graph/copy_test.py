from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import copy as copy_lib

DEVICE = "/job:ps/task:1"


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def test_what_outlives_a_run_is_shared_and_all_else_is_copied(graph):
  with tf.device(DEVICE):
    ref = tf.get_variable("ref", initializer=1.0, use_resource=False)
    resource = tf.get_variable("resource", initializer=2.0, use_resource=True)
  queue = tf.FIFOQueue(4, tf.float32)
  fed = tf.placeholder(tf.float32, [])
  total = tf.add_n([ref.read_value(), resource.read_value(), queue.dequeue(), fed], name="total")
  with tf.control_dependencies([tf.assert_positive(total)]):
    result = tf.identity(total, name="result")
  part = copy_lib.Subgraph([result, ref.assign_add(1.0).op])
  copy = part.copy("again")
  assert copy.of(result).name == "again/result:0" and copy.of(fed) is fed
  assert copy.of([None, {"a": total}])[1]["a"].op.type == "AddN"
  names = {op.name for op in part.ops}
  assert not names & {"ref", "resource", fed.op.name, queue.queue_ref.op.name}
  assert all(op.node_def.op != "Const" for op in part.ops if not op.control_inputs)
  for op in part.ops:
    assert copy.of(op).device == op.device and copy.of(op) is not op


def test_a_copy_has_the_shapes_that_were_set():
  read = tf.numpy_function(lambda: np.zeros([4, 3], np.float32), [], tf.float32)
  read.set_shape([None, 3])
  product = tf.matmul(read, read, transpose_a=True)
  copy = copy_lib.Subgraph([product]).copy("again")
  assert copy.of(read).shape.as_list() == [None, 3]
  assert copy.of(product).shape.as_list() == [3, 3]


def test_a_handle_that_waits_for_something_is_copied_and_stands_for_the_same():
  with tf.control_dependencies([tf.no_op()]):
    queue = tf.FIFOQueue(4, tf.int32, [[]], shared_name="shared")
  taken = queue.dequeue()
  copy = copy_lib.Subgraph(taken).copy("copy").of(taken)
  put = queue.enqueue_many([[1, 2]])
  with tf.Session() as session:
    session.run(put)
    assert [session.run(taken), session.run(copy)] == [1, 2]


def test_a_copy_waits_uses_another_copy_and_takes_other_inputs():
  x = tf.placeholder_with_default(3.0, [])
  square = tf.square(x)
  with tf.control_dependencies([tf.no_op("nothing")]):
    total = tf.add(square, 1.0, name="total")
  first = copy_lib.Subgraph(square)
  rest = copy_lib.Subgraph(total, without=first.ops)
  assert "nothing" not in {op.name for op in first.ops}
  gate = tf.constant(0, name="gate")
  once = first.copy("once", waits={square.op.name: [gate]})
  assert [op.name for op in once.of(square).op.control_inputs] == ["gate"]
  both = rest.copy("both", replace=once)
  assert both.of(total).op.inputs[0] is once.of(square) and both.of(square) is once.of(square)
  other = copy_lib.Subgraph(total, without=[square.op]).copy(
    "other", inputs={square.name: tf.constant(5.0)})
  with tf.Session() as session:
    assert session.run([total, both.of(total), other.of(total)]) == [10.0, 10.0, 6.0]


def test_random_numbers_of_a_seed_differ_from_copy_to_copy():
  tf.set_random_seed(1)
  drawn = tf.random.uniform([3])
  part = copy_lib.Subgraph(drawn)
  copies = [part.copy("copy", number).of(drawn) for number in (0, 1, 2)]
  with tf.Session() as session:
    values = session.run([drawn, *copies])
  assert values[0].tolist() == values[1].tolist()
  assert len({tuple(value) for value in values}) == 3


@pytest.mark.parametrize("kind", ["branch", "loop", "function", "gradient"])
def test_random_numbers_in_functions_differ_as_well(kind):
  tf.enable_control_flow_v2()
  x = tf.ones([20])

  def dropped(value):
    return tf.nn.dropout(value, rate=0.5, seed=3)

  if kind == "branch":
    drawn = tf.cond(tf.zeros([]) < 1.0, lambda: dropped(x), lambda: x)
  elif kind == "loop":  # a function in a function
    drawn = tf.while_loop(
      lambda i, _: i < 1,
      lambda i, y: (i + 1, tf.cond(i < 1, lambda: dropped(y), lambda: y)), [0, x])[1]
  else:
    drawn = tf.function(dropped)(x)
    if kind == "gradient":
      drawn, = tf.gradients(drawn, x)
  part = copy_lib.Subgraph([drawn])
  copies = [part.copy("copy", number).of(drawn) for number in (0, 1, 2, 2)]
  with tf.Session() as session:
    values = [tuple(value) for value in session.run([drawn] + copies)]
  assert values[0] == values[1] and values[3] == values[4]
  assert len(set(values)) == 3


def test_a_sparse_gradient_stays_one():
  table = tf.get_variable("table", initializer=np.ones([4, 2], np.float32))
  loss = tf.reduce_sum(tf.gather(table, [1, 1, 3]))
  gradient, = tf.gradients(loss, [table])
  copy = copy_lib.Subgraph([gradient]).copy("copy").of(gradient)
  assert isinstance(copy, tf.IndexedSlices)
  assert copy.values.name != gradient.values.name


@pytest.mark.parametrize("v2", [False, True])
def test_branches_loops_and_their_gradients(v2):
  (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
  w = tf.get_variable("w", initializer=2.0, use_resource=True)
  _, power = tf.while_loop(lambda i, _: i < 3, lambda i, p: (i + 1, p * w), [0, 1.0])
  either = tf.cond(power > 1.0, lambda: power * 2.0, lambda: power)
  gradient, = tf.gradients(either, w)
  part = copy_lib.Subgraph([either, gradient])
  copies = [part.copy("copy").of([either, gradient]) for _ in range(2)]
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    assert session.run([[either, gradient], copies]) == [[16.0, 24.0], [[16.0, 24.0]] * 2]


def test_nothing_to_copy_is_refused():
  with pytest.raises(ValueError, match="fetches must be tensors or operations, got \\[\\]"):
    copy_lib.Subgraph([])
