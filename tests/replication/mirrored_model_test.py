"""Mirrored variables without a ps, on worker processes and on the devices of one."""
from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.replication import nodes as nodes_lib
from tests.replication import reference
from tf1ps.cluster.session import BoundedSession
from tf1ps.replication import clones, mirrored_model, session_ops

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

WORKERS = nodes_lib.WORKERS


def devices(index, num_devices=1):
  return [WORKERS[index] + device for device in clones.local_devices(num_devices)]


def session(nodes, index, kind=tf.Session):
  return kind(nodes.target(index), config=nodes.config(*WORKERS))


def reaches(nodes, index, other):
  """Whether a worker's server reaches that of another one: gRPC waits before it tries again."""
  with nodes.graph(), tf.device(WORKERS[other]), session(nodes, index) as one:
    try:
      return one.run(tf.constant(True))
    except tf.errors.UnavailableError:
      return False


def start(model, session, generation=0):
  session.run(model.check_op, session_ops.all_reduce_feed(session.graph, generation))
  session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
  session.run(model.start_op)


def train(nodes, index, optimizer, num_tasks, num_devices, size, use_resource):
  """Trains as one of several tasks; returns the variables of each of its devices, and the loss."""
  count = num_tasks * num_devices
  with nodes.graph(), tf.variable_scope("", use_resource=use_resource):
    placeholders = ids, targets = reference.inputs(num_devices, size and size // count)
    model = mirrored_model.build_mirrored(
      lambda i: reference.model(ids[i], targets[i], offset=index + 0.1 * i),
      devices(index, num_devices), lambda: reference.make_optimizer(optimizer), index, num_tasks)
    with session(nodes, index) as one:
      start(model, one)
      for step in range(reference.STEPS):
        _, loss = one.run([model.train_op, model.loss], reference.feed(
          placeholders, step, index * num_devices, count))
      assert one.run(tf.train.get_global_step()) == reference.STEPS
      return [one.run({variable.op.name.replace("mirror_%d/" % mirror.index, ""): variable
                       for _, variable in mirror.grads_and_vars})
              for mirror in model.mirrors], loss


CASES = [(optimizer, num_tasks, 1, reference.BATCH, True) for num_tasks in (1, 2, 3)
         for optimizer in reference.OPTIMIZERS]
CASES += [("momentum", 1, 2, reference.BATCH, True), ("adam", 1, 2, None, False),
          ("momentum", 3, 1, None, True), ("adam", 2, 2, None, True),
          ("momentum", 2, 2, reference.BATCH, False)]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, num_tasks, num_devices, size, use_resource", CASES)
def test_fifty_steps_are_those_of_one_process_with_the_whole_batch(
    nodes, optimizer, num_tasks, num_devices, size, use_resource):
  trained = nodes.together(lambda index: train(
    nodes, index, optimizer, num_tasks, num_devices, size, use_resource), num_tasks)
  first = trained[0][0][0]
  for mirrors, loss in trained:
    for values in mirrors:
      reference.check(values, optimizer)
      for name, value in values.items():
        np.testing.assert_array_equal(value, first[name])  # mirrors are equal to the last digit
    np.testing.assert_allclose(loss, reference.train(optimizer)[1], atol=1e-5)


def scalar(index, target, **options):
  """(w - target)^2 / 2 with w = 0 at first."""
  return mirrored_model.build_mirrored(
    lambda i: tf.square(tf.get_variable("w", initializer=0.0) - target) / 2, devices(index),
    lambda: tf.train.GradientDescentOptimizer(0.5), index, 2, **options)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_two_workers_take_the_mean_of_their_gradients(nodes, use_resource):
  def work(index):
    with nodes.graph(), tf.variable_scope("", use_resource=use_resource):
      model = scalar(index, [1.0, 3.0][index])
      with session(nodes, index) as one:
        start(model, one)
        seen = []
        for _ in range(4):
          one.run(model.train_op)
          seen += one.run(tf.trainable_variables())
        return seen

  assert nodes.together(work, 2) == [[1.0, 1.5, 1.75, 1.875]] * 2


@pytest.mark.parametrize("lost", [0, 1])
def test_a_task_that_was_killed_in_a_step_and_started_again_trains_on_with_the_others(forks, lost):
  """The process of the other task lives on, with its server; it opens a new session."""
  with nodes_lib.started(forks, num_ps=0, num_workers=2) as nodes:
    def begin(index, generation):
      with nodes.graph("trainers"), tf.variable_scope("", use_resource=True):
        model, w = scalar(index, [1.0, 3.0][index]), tf.trainable_variables()[0]
        one = session(nodes, index, BoundedSession)
        start(model, one, generation)
        return lambda: one.run(model.train_op) or one.run(w), one

    def train(generation):
      trainers = nodes.together(lambda index: begin(index, generation), 2)
      assert [nodes.together(lambda index: trainers[index][0](), 2) for _ in range(3)] == [
        [w] * 2 for w in (1.0, 1.5, 1.75)]
      return trainers

    step, one = train(1)[1 - lost]
    ended = []

    def wait():
      try:
        step()
      except (tf.errors.OpError, KeyError) as error:
        ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    harness.wait_until(lambda: one.is_running)
    nodes.servers[lost].kill()
    one.abort(lambda: KeyError("as a watch over the other task does"))  # 1.15 gives no error
    thread.join(harness.LIMIT)
    assert ended
    one.close()
    nodes.start_again(lost)
    harness.wait_until(lambda: reaches(nodes, 1 - lost, lost))
    train(2)


def test_the_mean_is_clipped_and_not_the_gradients(nodes):
  def work(index):
    with nodes.graph():
      # The gradients are -10 and 4, their mean -3; with a norm of 2: w = 0.5 * 2.
      model = scalar(index, [10.0, -4.0][index], clip_norm=2.0)
      with session(nodes, index) as one:
        start(model, one)
        one.run(model.train_op)
        return one.run(tf.trainable_variables())

  assert nodes.together(work, 2) == [[1.0], [1.0]]


@pytest.mark.slow
def test_all_take_the_first_ones_values_and_its_slots_and_step(nodes):
  """As after a restore: what the first task has is not what was initialised."""
  def work(index):
    with nodes.graph():
      placeholders = ids, targets = reference.inputs(2, 3)
      model = mirrored_model.build_mirrored(
        lambda i: reference.model(ids[i], targets[i]), devices(index, 2),
        lambda: tf.train.AdamOptimizer(0.1), index, 2)
      variables = tf.global_variables() + tf.local_variables()
      if index == 0:
        others = [v.assign(tf.cast(tf.fill(v.shape, 0.25 + i), v.dtype.base_dtype))
                  for i, v in enumerate(tf.global_variables())]
      with session(nodes, index) as one:
        start(model, one)
        if index == 0:
          one.run(others)
        one.run(model.start_op)
        values = one.run(variables)
        one.run(model.train_op, reference.feed(placeholders, 0, 2 * index, 4))
        return ({v.op.name: value.tolist() for v, value in zip(variables, values)},
                one.run(tf.train.get_global_step()))

  (first, step), (second, other_step) = nodes.together(work, 2)
  assert first == second and step == other_step
  bare = {name: value for name, value in first.items() if not name.startswith("mirror_1/")}
  assert len([name for name in first if name.startswith("mirror_1/")]) == 9  # 3, each with 2 slots
  assert first["global_step"] == step - 1
  for name in ("table", "weight/Adam", "bias/Adam_1"):
    assert first["mirror_1/" + name] == bare[name]
  assert first["beta1_power"] == first["beta1_power_1"] != pytest.approx(0.9)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_one_process_with_two_devices_needs_no_server(use_resource):
  with tf.Graph().as_default(), tf.variable_scope("", use_resource=use_resource):
    def tower(index):
      average = tf.get_variable("average", initializer=0.0, trainable=False)
      tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_add(index + 1.0).op)
      return tf.square(tf.Variable(0.0, name="w") - [1.0, 3.0][index]) / 2

    model = mirrored_model.build_mirrored(
      tower, clones.local_devices(2), lambda: tf.train.MomentumOptimizer(0.5, 0.0))
    names = [[v.op.name for v in variables] for variables in (
      tf.trainable_variables(), tf.global_variables(), tf.local_variables())]
    assert names == [["w"], ["global_step", "average", "w", "w/Momentum"],
                     ["mirror_1/average", "mirror_1/w", "mirror_1/w/Momentum"]]
    assert [v.device for v in tf.local_variables()] == ["/device:CPU:1"] * 3
    with tf.Session(config=clones.with_cpu_devices(2)) as one:
      start(model, one)
      seen = []
      for _ in range(4):
        one.run(model.train_op)
        seen.append(one.run([model.mirrors[0].grads_and_vars[0][1],
                             model.mirrors[1].grads_and_vars[0][1]]))
      assert seen == [[w, w] for w in (1.0, 1.5, 1.75, 1.875)]
      # Each device's moving averages are its own.
      assert one.run([v for v in tf.global_variables() + tf.local_variables()
                      if v.op.name.endswith("average")]) == [4.0, 8.0]


def test_a_variable_that_one_device_does_not_use():
  with tf.Graph().as_default():
    def tower(index):
      a, b, table = (tf.get_variable(name, initializer=value)
                     for name, value in (("a", 1.0), ("b", 1.0), ("table", [[1.0], [1.0], [1.0]])))
      if index:
        return a * 4.0
      return b * 2.0 + tf.reduce_sum(tf.gather(table, [2, 2]))

    model = mirrored_model.build_mirrored(
      tower, clones.local_devices(2), lambda: tf.train.GradientDescentOptimizer(1.0))
    with tf.Session(config=clones.with_cpu_devices(2)) as one:
      start(model, one)
      one.run(model.train_op)
      for mirror in model.mirrors:
        a, b, table = one.run([variable for _, variable in mirror.grads_and_vars])
        assert (a, b, table.tolist()) == (-1.0, 0.0, [[1.0], [1.0], [0.0]])


def test_tasks_with_different_models_are_refused(nodes):
  def work(index):
    with nodes.graph():
      model = mirrored_model.build_mirrored(
        lambda i: tf.reduce_sum(tf.get_variable("w", [2 + index])), devices(index),
        lambda: tf.train.GradientDescentOptimizer(1.0), index, 2)
      with session(nodes, index) as one:
        with pytest.raises(tf.errors.InvalidArgumentError, match="different models"):
          one.run(model.check_op)

  nodes.together(work, 2)


def build(tower_fn, **options):
  return mirrored_model.build_mirrored(
    tower_fn, clones.local_devices(2), lambda: tf.train.GradientDescentOptimizer(1.0), **options)


@pytest.mark.parametrize("call, said", [
  (lambda: build(None, task_index=2, num_tasks=2), "from 0 to num_tasks - 1, got 2 of 2"),
  (lambda: build(lambda i: tf.reduce_sum(tf.get_variable("w", [i + 1]))),
   r"tower_fn\(1\) has made other variables than tower_fn\(0\)"),
  (lambda: build(lambda i: tf.constant("loss")), "floating type; tower 0's is string"),
  (lambda: build(lambda i: tf.reduce_sum(tf.get_variable("w", initializer=tf.placeholder(
    tf.float32, [None]), validate_shape=False))), "w has the shape .*, and the shape of a "),
])
def test_arguments_are_checked(call, said):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    call()
