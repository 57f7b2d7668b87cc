from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks
from tf1ps.replication import model_parallel

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

CPUS = tf.ConfigProto(device_count={"CPU": 3})
RNG = np.random.RandomState(0)
X = RNG.randn(6, 4).astype(np.float32)
TARGET = RNG.randn(6, 5).astype(np.float32)
WEIGHTS, BIASES = RNG.randn(4, 5).astype(np.float32), RNG.randn(5).astype(np.float32)
MORE = RNG.randn(5, 5).astype(np.float32)


def dense(name, units, activation):
  """A layer without any split."""
  def build(inputs):
    with tf.variable_scope(name):
      weights = tf.get_variable("weights", [int(inputs.shape[1]), units])
      biases = tf.get_variable("biases", [units])
    return activation(tf.matmul(inputs, weights) + biases)

  return build


def train(build, variables, devices=False, target="", steps=3):
  """Trains with momentum from given values.

  Args:
    build: outputs from inputs.
    variables: {name in a checkpoint: value}.
    devices: whether each gradient must be where its variable is.

  Returns:
    (gradients of the first step, variables after the last) by name, put together from their parts.
  """
  with tf.Graph().as_default():
    loss = tf.reduce_mean(tf.square(build(tf.constant(X)) - TARGET))
    trained = tf.trainable_variables()
    names = [v.op.name for v in trained]
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    gradients = optimizer.compute_gradients(loss, trained, colocate_gradients_with_ops=True)
    step = optimizer.apply_gradients(gradients)
    for gradient, variable in gradients if devices else []:
      assert gradient.device == variable.device, variable.name
    whole = {}
    for variable in trained:
      whole.setdefault(variable.op.name.split("/part_")[0], []).append(variable)
    assigns = []
    for name, parts in whole.items():
      sizes = [int(part.shape[-1]) for part in parts]
      for part, value in zip(parts, np.split(variables[name], np.cumsum(sizes)[:-1], -1)):
        assigns.append(part.assign(value))
    with tf.Session(target, config=CPUS) as session:
      session.run(tf.global_variables_initializer())
      session.run(assigns)
      first = dict(zip(names, session.run([g for g, _ in gradients])))
      for _ in range(steps):
        session.run(step)
      last = dict(zip(names, session.run(trained)))

  def join(values):
    return {name: np.concatenate([values[part.op.name] for part in parts], -1)
            for name, parts in whole.items()}

  return join(first), join(last)


def assert_same(found, expected):
  for some, others in zip(found, expected):
    assert sorted(some) == sorted(others)
    for name in some:
      np.testing.assert_allclose(some[name], others[name], atol=1e-6, err_msg=name)


VALUES = {"h/weights": WEIGHTS, "h/biases": BIASES, "o/weights": MORE, "o/biases": -BIASES}
LAYERS = [dense("h", 5, tf.nn.relu), dense("o", 5, tf.identity)]


@pytest.fixture(scope="module")
def unsplit():
  """The gradients and the variables of the network on one device."""
  return train(lambda x: LAYERS[1](LAYERS[0](x)), VALUES)


def split_by_columns(devices):
  def build(x):
    hidden = model_parallel.split_dense(x, 5, devices, tf.nn.relu, name="h").outputs
    return model_parallel.split_dense(hidden, 5, devices, name="o").outputs

  return build


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_layer_on_each_device(unsplit, use_resource):
  def build(x):
    with tf.variable_scope("", use_resource=use_resource):
      outputs = model_parallel.layers_on_devices(x, LAYERS, ["/cpu:1", "/cpu:2"])
    assert outputs.device[-5:] == "CPU:2"
    assert [v.device[-5:] for v in tf.trainable_variables()] == ["CPU:1"] * 2 + ["CPU:2"] * 2
    return outputs

  assert_same(train(build, VALUES, devices=True), unsplit)


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_columns_on_devices(unsplit, parts, use_resource):
  def build(x):
    with tf.variable_scope("", use_resource=use_resource):
      return split_by_columns(["/cpu:%d" % i for i in range(parts)])(x)

  assert_same(train(build, VALUES, devices=True), unsplit)


@pytest.mark.slow
def test_tasks_of_a_cluster(unsplit, forks):
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    target, devices = "grpc://" + tasks[0].address, [task.name for task in tasks]
    assert_same(train(
      lambda x: model_parallel.layers_on_devices(x, LAYERS, devices), VALUES, True, target),
      unsplit)
    assert_same(train(split_by_columns(devices[::-1]), VALUES, True, target), unsplit)


def test_names_shapes_and_devices_of_the_parts():
  with tf.Graph().as_default():
    layer = model_parallel.split_dense(tf.constant(X), 5, ["/cpu:1", "/cpu:2"], name="h")
    found = [(v.op.name, v.shape.as_list(), v.device[-5:]) for v in tf.global_variables()]
    assert [part.shape.as_list() for part in layer.parts] == [[6, 3], [6, 2]]
    assert [part.device[-5:] for part in layer.parts] == ["CPU:1", "CPU:2"]
    assert layer.outputs.shape.as_list() == [6, 5] and layer.outputs.device == ""
    assert [v.op.name for v in layer.weights + layer.biases] == [name for name, _, _ in found]
  assert found == [
    ("h/weights/part_0", [4, 3], "CPU:1"), ("h/weights/part_1", [4, 2], "CPU:2"),
    ("h/biases/part_0", [3], "CPU:1"), ("h/biases/part_1", [2], "CPU:2")]


def test_initial_values():
  with tf.Graph().as_default(), tf.Session(config=CPUS) as session:
    layer = model_parallel.split_dense(
      tf.constant(X), 5, ["/cpu:1", "/cpu:2"], weights_initializer=tf.constant_initializer(2.0))
    other = model_parallel.split_dense(tf.constant(X), 6, ["/cpu:1", "/cpu:2"], name="other",
                                       biases_initializer=tf.constant_initializer(3.0))
    session.run(tf.global_variables_initializer())
    weights, biases = session.run([layer.weights, layer.biases])
    assert [np.unique(w).tolist() for w in weights] == [[2.0]] * 2
    assert [b.tolist() for b in biases] == [[0.0] * 3, [0.0] * 2]
    weights, biases = session.run([other.weights, other.biases])
    assert [np.unique(b).tolist() for b in biases] == [[3.0]] * 2
    # Glorot's limit, sqrt(6 / (in + out)), of the whole layer; and the parts are not the same.
    limit = np.sqrt(6 / (4 + 6))
    assert np.abs(weights).max() <= limit and not np.allclose(weights[0], weights[1])


def test_a_checkpoint_is_whole_and_fits_any_number_of_parts(tmp_path):
  def build(parts):
    with tf.Graph().as_default():
      layer = model_parallel.split_dense(
        tf.constant(X), 5, ["/cpu:%d" % i for i in range(parts)], tf.tanh, name="h")
      return layer.outputs, tf.train.Saver(), tf.global_variables_initializer()

  outputs, saver, initializer = build(2)
  with tf.Session(graph=outputs.graph, config=CPUS) as session:
    session.run(initializer)
    expected = session.run(outputs)
    path = saver.save(session, str(tmp_path / "model"))
  assert dict(tf.train.list_variables(path)) == {"h/weights": [4, 5], "h/biases": [5]}
  for parts in (1, 3):
    outputs, saver, _ = build(parts)
    with tf.Session(graph=outputs.graph, config=CPUS) as session:
      saver.restore(session, path)
      np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)
  with tf.Graph().as_default(), tf.Session() as session:  # the plain layer
    outputs, saver = dense("h", 5, tf.tanh)(tf.constant(X)), tf.train.Saver()
    saver.restore(session, path)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


def test_columns_are_as_equal_as_can_be():
  assert model_parallel.columns(9, 2) == [5, 4]
  assert model_parallel.columns(8, 3) == [3, 3, 2]
  assert model_parallel.columns(3, 3) == [1, 1, 1]


@pytest.mark.parametrize("function, message", [
  (lambda x: model_parallel.split_dense(x, 2, ["/cpu:0"] * 3), "2 units .* over 3 devices"),
  (lambda x: model_parallel.split_dense(x, 2, []), "over 0 devices"),
  (lambda x: model_parallel.split_dense(tf.placeholder(tf.float32, [2, None]), 2, ["/cpu:0"]),
   "'dense' must have a known depth"),
  (lambda x: model_parallel.layers_on_devices(x, LAYERS, ["/cpu:0"]), "2 layers and 1 devices"),
  (lambda x: model_parallel.layers_on_devices(x, [], []), "0 layers and 0 devices"),
])
def test_arguments_that_cannot_work(function, message):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    function(tf.constant(X))
