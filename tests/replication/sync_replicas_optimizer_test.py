"""Synchronous replicas as real processes; what TensorFlow's own class does there stands beside."""
from __future__ import annotations

import concurrent.futures
import json
import sys
import threading
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks, harness
from tests.replication import sync_tasks
from tf1ps.cluster.description import Cluster
from tf1ps.replication import rounds, sync_replicas_optimizer
from tf1ps.transfer import traffic

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

MODERN = sys.version_info >= (3, 8)  # TensorFlow 2
NAMES = ("sgd", "momentum", "adam", "adagrad", "decay")


def reference(name):
  """One session on whole batches: the variables after all steps."""
  ids, targets = sync_tasks.data()
  with tf.Graph().as_default(), tf.Session() as session:
    fed = tf.placeholder(tf.int32, [None, 2]), tf.placeholder(tf.float32, [None])
    step = tf.train.get_or_create_global_step()
    loss = sync_tasks.loss_of(*fed, use_resource=True)
    variables = tf.trainable_variables()
    optimizer = sync_tasks.INNER[name]()
    grads_and_vars = optimizer.compute_gradients(loss)
    if name == "adagrad":
      # The norm of what is applied: rows that the batch has twice are one row.
      dense = [tf.convert_to_tensor(gradient) for gradient, _ in grads_and_vars]
      grads_and_vars = list(zip(tf.clip_by_global_norm(dense, 0.5)[0], variables))
    train = optimizer.apply_gradients(grads_and_vars, step)
    if name == "momentum":
      averages = tf.train.ExponentialMovingAverage(0.9)
      with tf.control_dependencies([train]):
        train = averages.apply(variables)
      variables = variables + [averages.average(v) for v in variables]
    session.run(tf.global_variables_initializer())
    for i in range(sync_tasks.STEPS):
      session.run(train, dict(zip(fed, (ids[i], targets[i]))))
    return session.run(variables)


@pytest.mark.parametrize("replicas, cases, control_flow_v2", [
  (2, [(2, True, NAMES[3:4]), (2, False, NAMES[1:2])], False),
  pytest.param(2, [(2, True, NAMES[4:])], False, marks=pytest.mark.slow),
  pytest.param(3, [(1, True, NAMES[:3]), (2, True, NAMES[2:3]),
                   (3, True, NAMES[:3] + ("rmsprop",))], False,
               marks=pytest.mark.slow),
  pytest.param(2, [(2, True, NAMES[1:2])], True, marks=[pytest.mark.slow, pytest.mark.skipif(
    not MODERN, reason="TensorFlow 1 has one control flow unless told")]),
])
def test_replicas_equal_one_process_on_their_batches_together(
    start, replicas, cases, control_flow_v2):
  jobs = {"ps": harness.addresses(2), "worker": harness.addresses(replicas)}
  for i in range(2):
    start("ps %d" % i, cluster_tasks.serve, jobs, "ps", i)
  workers = [start("worker %d" % i, sync_tasks.train_equally, jobs, i, cases, control_flow_v2)
             for i in range(replicas)]
  expected = {name: reference(name) for name in {name for case in cases for name in case[2]}}
  assert [worker.wait(120) for worker in workers] == [0] * replicas, workers[0].output
  found = [json.loads(line[len("found "):]) for line in workers[0].lines
           if line.startswith("found ")]
  assert [tuple(one["case"]) for one in found] == [case[:2] for case in cases]
  for one, case in zip(found, cases):
    assert one["steps"] == sync_tasks.STEPS
    assert sorted(one["values"]) == sorted(case[2])
    for name, values in one["values"].items():
      for value, right in zip(values, expected[name]):
        np.testing.assert_allclose(value, right, atol=1e-5, err_msg="%s of %s" % (name, case))


class Replicas(object):
  """A job of replicas that count; see `sync_tasks.count`."""

  def __init__(self, start, workers=2):
    self.jobs = {"ps": harness.addresses(1), "worker": harness.addresses(workers)}
    self._start = start
    start("ps", cluster_tasks.serve, self.jobs, "ps", 0)

  def start(self, index, own_steps, kind="ours", options=(), gate=None, hold_at=-1):
    """Starts one; replica 0 first: who comes before it has initialised waits for 30 s."""
    task = self._start("%s worker %d" % (kind, index), sync_tasks.count, self.jobs, index, kind,
                       dict(options), own_steps, gate and str(gate), hold_at)
    if index == 0:
      task.wait_for("ready")
    return task


def made(task):
  """What a replica has said of its steps: [(own step, global step, totals...)]."""
  return [tuple(float(part) for part in line[len("made "):].replace(":", "").split())
          for line in list(task.lines) if line.startswith("made ")]


def losses(task):
  """The losses of its steps, as a replica has said them."""
  return [float(line.split()[1]) for line in task.lines if line.startswith("loss ")]


def last_state(task):
  """The state of the rounds at the end of a replica's hook, and how the replica left."""
  _, text = task.wait_for("state ").split(" ", 1)
  text, end = text[:text.rindex("}") + 1], text[text.rindex("}") + 2:]
  return json.loads(text), end


def closed_after(task):
  """How long its session took to close, in seconds; it has ended then."""
  task.wait()
  line, = [line for line in task.lines if line.startswith("closed after ")]
  return float(line.split()[2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_a_chief_asleep_is_waited_for(start, tmp_path, kind):
  replicas = Replicas(start)
  gate = tmp_path / "gate"
  chief = replicas.start(0, 6, kind, gate=gate, hold_at=0)
  worker = replicas.start(1, 6, kind)
  chief.wait_for("holds")
  if kind == "stock":
    worker.wait_for("made 2")  # tokens in advance let it go on by itself
    assert made(worker)[0] == (1, 0, 0, 0)
    return
  with pytest.raises(AssertionError, match="no 'made 1' within"):
    worker.wait_for("made 1", limit=2.0)
  gate.write_text("")
  assert [chief.wait(), worker.wait()] == [0, 0]
  # Each update has half of each: one gradient of each replica.
  assert made(chief) == made(worker) == [(k, k, k / 2, k / 2) for k in range(1, 7)]
  found, _ = last_state(chief)
  assert found["taken"] == [6, 6] and found["stale"] == [0, 0]


@pytest.mark.slow
def test_at_unequal_speed_each_update_has_one_gradient_of_each(start):
  replicas = Replicas(start, workers=3)
  tasks = [replicas.start(i, 40) for i in range(3)]
  assert [task.wait() for task in tasks] == [0, 0, 0]
  for task in tasks:
    steps = np.array(made(task))
    np.testing.assert_allclose(steps, np.stack(
      [steps[:, 0], steps[:, 0]] + [steps[:, 0] / 3] * 3, axis=1), rtol=1e-5)
    assert losses(task) == [k * (1 + 4 + 16) / 3 for k in range(1, 41)]


def ends(tasks, limit=15.0):
  """How stock replicas end: (steps, exit code or None, seconds that the close took or None)."""
  found = []
  for task in tasks:
    try:
      code = task.wait(limit)
    except AssertionError:  # it waits for a token that nobody puts there
      found.append((len(made(task)), None, None))
      continue
    has_closed = any(line.startswith("closed after ") for line in task.lines)
    found.append((len(made(task)), code, closed_after(task) if has_closed else None))
  for task in tasks:
    task.kill()
  return found


@pytest.mark.slow
def test_stock_does_not_outlive_its_chief(start):
  replicas = Replicas(start)
  (_, _, close), (steps, code, _) = ends([replicas.start(0, 5, "stock"),
                                          replicas.start(1, 30, "stock")])
  # It may wait for ever, end early with success, or keep the chief for stop_grace_period_secs.
  assert close is None or close > 2.0 or (steps, code) != (30, 0)


@pytest.mark.slow
@pytest.mark.parametrize("on_uneven, steps", [("stop_all", 5), ("shrink", 30), ("pad", 30)])
def test_a_chief_that_leaves_first(start, on_uneven, steps):
  replicas = Replicas(start)
  options = dict(on_uneven=on_uneven)
  chief, worker = replicas.start(0, 5, "ours", options), replicas.start(1, 30, "ours", options)
  # TensorFlow's chief may take all of stop_grace_period_secs, and no test lasts so long.
  assert [chief.wait(), worker.wait()] == [0, 0]
  assert made(worker) == [(k, k, min(k, 5) / 2, min(k, 5) / 2 + max(0, k - 5))
                          for k in range(1, steps + 1)]
  assert losses(chief) == [2.5 * k for k in range(1, 6)]  # (k + 4 k) / 2
  assert losses(worker) == [2.5 * k for k in range(1, 6)] + [4 * k for k in range(6, steps + 1)]
  found, end = last_state(worker)
  assert end == ("was ended" if on_uneven == "stop_all" else "has left")
  assert found["taken"] == [5, steps]


@pytest.mark.slow
def test_a_second_job_on_the_same_ps_trains(start):
  replicas = Replicas(start)
  for _ in range(2):
    tasks = [replicas.start(i, 5) for i in range(2)]
    assert [task.wait() for task in tasks] == [0, 0]
    assert made(tasks[0]) == made(tasks[1]) == [(k, k, k / 2, k / 2) for k in range(1, 6)]


@pytest.mark.slow
@pytest.mark.skipif(not MODERN, reason="TensorFlow 1 does not close the token queue")
def test_stock_does_not_train_a_second_job(start):
  replicas = Replicas(start)
  ends([replicas.start(i, 5, "stock") for i in range(2)])
  # The token queue is closed: who comes later ends without its steps, by success or by an error.
  try:
    found = ends([replicas.start(i, 5, "stock") for i in range(2)])
  except AssertionError as error:
    assert "FIFOQueue 'sync_token_q' is closed" in str(error)
  else:
    assert [end[:2] for end in found] != [(5, 0), (5, 0)]


@pytest.mark.slow
def test_a_spare_replica_is_not_waited_for_and_its_late_gradient_is_counted(start, tmp_path):
  replicas = Replicas(start)
  gates = [tmp_path / "fast", tmp_path / "slow"]
  options = dict(replicas_to_aggregate=1, total_num_replicas=2, on_uneven="shrink")
  fast, slow = [replicas.start(i, [6, 3][i], options=options, gate=gates[i], hold_at=0)
                for i in range(2)]
  for task in (fast, slow):
    task.wait_for("holds")  # it has joined, and computes for round 0
  for task, gate in zip((fast, slow), gates):
    gate.write_text("")
    assert task.wait() == 0
  # Its first gradient is for a round that is over; then it continues with the present one.
  assert made(slow) == [(1, 6, 6, 0), (2, 7, 6, 1), (3, 8, 6, 2)]
  found, _ = last_state(slow)
  assert found["taken"] == [6, 2] and found["stale"] == [0, 1]


def unknown_shape_steps(shape, kind, wire_dtype, replicas):
  """The variables after three steps; each replica has its part of the batch."""
  with tf.Graph().as_default(), tf.Session() as session:
    initial = tf.placeholder_with_default(tf.ones([4, 2]), shape)
    w = tf.Variable(initial, validate_shape=False, use_resource=kind == "resource", name="w")
    table = tf.Variable(initial, validate_shape=False, use_resource=False, name="table")
    assert not w.shape.is_fully_defined() and not table.shape.is_fully_defined()
    step = tf.train.get_or_create_global_step()
    ids, targets = tf.constant([0, 1, 1, 3]), tf.constant([[1.0, 2], [3, 4], [5, 6], [7, 8]])
    trains, joins = [], []
    for i in range(max(1, replicas)):
      part = slice(2 * i, 2 * i + 2) if replicas else slice(4)
      rows = tf.gather(table, ids[part])
      optimizer = inner = tf.train.GradientDescentOptimizer(0.25)
      if replicas:
        optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
          inner, replicas, replica_index=i, wire_dtype=wire_dtype, pack_bytes=1000)
      loss = tf.reduce_mean((rows - targets[part]) ** 2) + tf.reduce_mean(
        tf.cast(part.start or 0, tf.float32) * w if replicas else w)
      trains.append(optimizer.minimize(loss, step, [w, table]))
      if replicas:
        joins.append(optimizer.local_step_init_op)
    session.run(tf.global_variables_initializer())
    session.run(joins)
    for _ in range(3):
      session.run(trains)
    assert session.run(step) == 3
    return [one.tolist() for one in session.run([w, table])]


@pytest.mark.slow
@pytest.mark.parametrize("shape, kind, wire_dtype", [
  (None, "ref", "float32"), ([None, 2], "resource", "bfloat16")])
def test_variables_of_unknown_shapes_train_as_in_one_process(
    request, shape, kind, wire_dtype):
  # Ref variables need the control flow of TensorFlow 1. All values are exact in bfloat16.
  was = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  request.addfinalizer(tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)
  alone = unknown_shape_steps(shape, kind, wire_dtype, 0)
  assert unknown_shape_steps(shape, kind, wire_dtype, 2) == alone


def test_a_process_with_servers_of_all_tasks_names_its_replica(monkeypatch):
  cluster = Cluster({"worker": {0: "a:1"}, "ps": {0: "a:2", 1: "a:3"}}, "ps", 1)
  monkeypatch.setattr(sync_replicas_optimizer, "latest_record",
                      lambda: types.SimpleNamespace(cluster=cluster))
  inner = tf.train.GradientDescentOptimizer(1.0)
  with pytest.raises(ValueError, match="/job:ps/task:1, this process's last server, does not "
                                       "train.* gives replica_index="):
    sync_replicas_optimizer.SyncReplicasOptimizer(inner, 2, total_num_replicas=2)
  sync_replicas_optimizer.SyncReplicasOptimizer(inner, 2, total_num_replicas=2, replica_index=0)


@pytest.mark.slow
def test_a_sum_above_float16_has_a_mean():
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", [2], tf.float16, tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    made = [sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 2, replica_index=i) for i in range(2)]
    trains = [one.apply_gradients([(tf.fill([2], tf.constant(value, tf.float16)), w)], step)
              for one, value in zip(made, (40000, 60000))]
    session.run(tf.global_variables_initializer())
    session.run([one.local_step_init_op for one in made])
    session.run(trains)
    assert session.run(w).tolist() == [-49984.0, -49984.0]  # the nearest number to 50,000


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 100000])  # the large one looks first, and sends nothing
def test_a_late_gradient_is_never_applied(size):
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", [size], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    fast, slow = [sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 1, 2, replica_index=i) for i in range(2)]
    trains = [one.apply_gradients([(tf.fill([size], -value), w)], step)
              for one, value in ((fast, 1.0), (slow, 10.0))]
    session.run(tf.global_variables_initializer())
    for one in (fast, slow):
      session.run(one.local_step_init_op)  # both compute for the first round
    found = []
    for train in (trains[0], trains[1], trains[1]):
      session.run(train)
      found.append((session.run(w).max(), session.run(step)))
    assert found == [(1.0, 1), (1.0, 1), (11.0, 2)]
    state = rounds.view_rounds(session.run(slow.look))
    assert (state.taken, state.stale) == ([1, 1], [0, 1])


@pytest.mark.slow
def test_the_loss_of_a_step_is_the_mean_over_the_gradients_in_its_update(start, tmp_path):
  replicas = Replicas(start, workers=3)
  gate = tmp_path / "gate"
  options = dict(replicas_to_aggregate=2, total_num_replicas=3, on_uneven="pad")
  tasks = [replicas.start(0, 4, options=options), replicas.start(1, 4, options=options),
           replicas.start(2, 3, options=options, gate=gate, hold_at=0)]
  tasks[2].wait_for("holds")
  assert [task.wait() for task in tasks[:2]] == [0, 0]
  gate.write_text("")
  assert tasks[2].wait() == 0
  # Those who do not wait for it, and those who have no more data, are not in each other's means.
  together = losses(tasks[0])
  assert together == losses(tasks[1]) == [2.5, 5, 7.5, 10]
  # Its first is too late: its own loss; then it has the updates for itself.
  assert losses(tasks[2]) == [16, 32, 48]


@pytest.mark.slow
@pytest.mark.parametrize("aggregate", [2, 1])
def test_a_step_sends_what_it_has_to_and_asks_nothing_back(aggregate):
  jobs = {"ps": ["127.0.0.1:1"], "worker": ["127.0.0.1:2", "127.0.0.1:3"]}
  with tf.Graph().as_default(), tf.device(tf1ps.replica_device_setter(
      cluster=jobs, worker_device="/job:worker/task:0")):
    large, small = [tf.get_variable(name, shape, use_resource=True) for name, shape in (
      ("large", [100, 100]), ("small", [100]))]
    other = tf.get_variable("other", [100], use_resource=True)
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), aggregate, 2, replica_index=0, pack_bytes=1000)
    loss = tf.reduce_sum(tf.square(large)) + tf.reduce_sum(tf.square(small * other))
    train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
    report = traffic.report_traffic([train, optimizer.round_result.loss])
    sent = sorted((one.bytes, one.destination) for one in report.messages)
  assert sent == [
    (8, "/job:ps/task:0"),  # the loss
    (40, "/job:worker/task:0"),  # the token
    (800, "/job:ps/task:0"), (800, "/job:worker/task:0"),  # the small ones together
    (40000, "/job:ps/task:0"), (40000, "/job:worker/task:0")]


@pytest.mark.slow
def test_the_loss_may_be_given():
  with tf.Graph().as_default(), tf.Session() as session:
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer(), use_resource=True)
    inner = tf.train.GradientDescentOptimizer(0.5)

    def optimizer(name):
      return sync_replicas_optimizer.SyncReplicasOptimizer(
        inner, 1, replica_index=0, name=name)

    known, vague, given = [optimizer(name) for name in ("known", "vague", "given")]
    pairs = known.compute_gradients(tf.cast(w, tf.float64) * [2, 4])
    known.apply_gradients(pairs, step)
    for loss in (w * 3, w * 5):
      pairs = vague.compute_gradients(loss)
      given.compute_gradients(loss)
    vague.apply_gradients(pairs, step)
    assert vague.round_result.loss is None  # nobody knows which one
    with pytest.raises(ValueError, match="loss must be a float tensor, got <tf.Tensor"):
      given.apply_gradients(pairs, step, loss=tf.constant(7))
    given.apply_gradients(pairs, step, loss=tf.constant(7.5, tf.float16))
    session.run([tf.global_variables_initializer()])
    session.run([one.chief_init_op for one in (known, vague, given)])
    assert session.run(known.round_result.loss) == 3.0
    assert session.run(given.round_result.loss) == 7.5
    assert session.run(list(vague.round_result[:3])) == [1, 3, True]
    assert [one.round_result.loss.dtype for one in (known, given)] == [tf.float64, tf.float16]


@pytest.mark.parametrize("arguments, message", [
  (dict(replicas_to_aggregate=-1), "replicas_to_aggregate must be .* 1 or more, got -1"),
  (dict(replicas_to_aggregate=3, total_num_replicas=2), "it must be 2 or less.*larger"),
  (dict(replicas_to_aggregate=2, replica_id=2), "replica_index must be 0 to 1, got 2"),
  (dict(replicas_to_aggregate=2, replica_index=2), "replica_index must be 0 to 1, got 2"),
  (dict(replicas_to_aggregate=2, replica_index=0, on_uneven="wait"),
   "stop_all, pad, shrink, repeat"),
  (dict(replicas_to_aggregate=1, total_num_replicas=2, replica_index=0, on_uneven="repeat"),
   "on_uneven=repeat needs a gradient of each replica in every update, but an update takes 1 of 2"),
  (dict(replicas_to_aggregate=2, replica_index=0, clip_norm=0.0), "clip_norm must be above 0"),
])
def test_arguments_that_cannot_work_are_refused(arguments, message):
  with pytest.raises(ValueError, match=message):
    sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), **arguments)


@pytest.mark.parametrize("replicas, message", [
  (0, "there are 0 replicas"), (2, "the index of this replica is not known")])
def test_an_evaluator_may_make_one_and_train_with_none(replicas, message):
  with tf.Graph().as_default():
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), replicas)
    w = tf.get_variable("w", [])
    with pytest.raises(ValueError, match=message):
      optimizer.minimize(w, tf.train.get_or_create_global_step())


@pytest.mark.slow
def test_it_is_used_like_tensorflows():
  with tf.Graph().as_default():
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.MomentumOptimizer(0.5, 0.9), np.int64(1))  # the only replica needs no index
    with pytest.raises(ValueError, match=(
        r"get_init_tokens_op\(\) should be called after apply_gradients\(\)\.")):
      optimizer.get_init_tokens_op()
    with pytest.raises(ValueError, match=r"Should be called after apply_gradients\(\)\."):
      optimizer.get_chief_queue_runner()
    with pytest.raises(ValueError, match="apply_gradient should be called before using the hook"):
      optimizer.make_session_run_hook(True).begin()
    with pytest.raises(ValueError, match="Global step is required to check staleness"):
      optimizer.apply_gradients([])
    with pytest.raises(ValueError, match="Must supply at least one variable"):
      optimizer.apply_gradients([], tf.train.get_or_create_global_step())
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(tf.square(w - 1.0), step)
    assert optimizer.get_slot_names() == ["momentum"]
    assert optimizer.get_slot(w, "momentum").shape == w.shape
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      with pytest.raises(tf.errors.InvalidArgumentError, match="replica 0 has not joined. Run the"):
        session.run(train)
      session.run(optimizer.chief_init_op)
      session.run(optimizer.get_init_tokens_op())
      coordinator = tf.train.Coordinator()
      runners = optimizer.get_chief_queue_runner().create_threads(session, coordinator, start=True)
      runners[0].join(60)
      assert not runners[0].is_alive()  # it has nothing to run
      session.run(train)
      assert (session.run(w), session.run(step)) == (1.0, 1)
      coordinator.request_stop()
      coordinator.join(runners)


@pytest.mark.slow
def test_two_of_one_replica_have_names_of_their_own():
  """Of one name they would share a round, and each would wait for the other's gradient."""
  with tf.Graph().as_default(), tf.Session() as session:
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)

    def minimize(loss, **kwargs):
      optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(1.0), 1, replica_index=0, **kwargs)
      return optimizer, optimizer.minimize(loss, step)

    first, train_first = minimize(-w)
    with pytest.raises(ValueError, match="replica 0 has .* 'sync_replicas' .* another name="):
      minimize(-10.0 * w)
    second, train_second = minimize(-10.0 * w, name="second")
    session.run(tf.global_variables_initializer())
    session.run([first.chief_init_op, second.chief_init_op])
    for _ in range(2):
      session.run([train_first, train_second], options=tf.RunOptions(timeout_in_ms=60000))
    assert session.run([w, step]) == [22.0, 4]


@pytest.mark.slow
def test_a_supervisor_joins():
  with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(1, ps_device="/cpu:0", worker_device="/cpu:0")):
      w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
      step = tf.train.get_or_create_global_step()
      optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
        tf.train.GradientDescentOptimizer(0.5), 1, 1)
      train = optimizer.minimize(tf.square(w - 1.0), step)
      tokens = optimizer.get_init_tokens_op()
    # Half of the programs with a Supervisor do not mention local_step_init_op.
    supervisor = tf.train.Supervisor(
      logdir=None, global_step=step, ready_for_local_init_op=optimizer.ready_for_local_init_op)
    with supervisor.managed_session() as session:
      supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
      session.run(tokens)
      session.run(train)
      assert (session.run(w), session.run(step)) == (1.0, 1)


def test_what_a_loop_asks_for_is_built_before_the_graph_is_final():
  with tf.Graph().as_default() as graph, tf.Session() as session:
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(0.5), 1)
    optimizer.minimize(tf.square(w - 1.0), tf.train.get_or_create_global_step())
    initializers = [tf.global_variables_initializer(), tf.local_variables_initializer()]
    graph.finalize()
    session.run(initializers[0])
    assert optimizer.get_chief_queue_runner().queue is not None
    session.run(optimizer.get_init_tokens_op())
    assert session.run(optimizer.ready_for_local_init_op).tolist() == []
    session.run(initializers[1])
    assert rounds.view_rounds(session.run(optimizer.look)).active == [1]


@pytest.mark.slow
def test_the_hook_joins_once():
  with tf.Graph().as_default():
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(0.5), 1)
    train = optimizer.minimize(tf.square(w - 1.0), tf.train.get_or_create_global_step())
    hook = optimizer.make_session_run_hook(is_chief=True)
    with tf1ps.MonitoredTrainingSession(hooks=[hook]) as session:
      session.run(train)
    assert hook.state.joins == 1


class OwnVariables(tf.train.Optimizer):
  """Momentum with variables by tf.get_variable, as in AdamWeightDecayOptimizer of BERT."""

  def __init__(self, make=tf.get_variable):
    super().__init__(False, "OwnVariables")
    self._make = make

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    done = []  # nor does it count
    for gradient, variable in grads_and_vars:
      momentum = self._make(name=variable.op.name + "/m", shape=[], trainable=False,
                            initializer=tf.zeros_initializer(), use_resource=True)
      grown = momentum.assign_add(gradient)
      with tf.control_dependencies([grown]):
        done.append(variable.assign_sub(momentum.read_value()))
    return tf.group(*done)


@pytest.mark.slow
@pytest.mark.parametrize("control_flow_v2", [False, True] if MODERN else [False])
@pytest.mark.parametrize("on_uneven", ["shrink", "pad"])
def test_an_optimizer_may_make_its_variables_itself(on_uneven, control_flow_v2):
  """The last update is that of the replica that leaves."""
  was = tf.control_flow_v2_enabled()
  (tf.enable_control_flow_v2 if control_flow_v2 else tf.disable_control_flow_v2)()
  target = tf.train.Server.create_local_server().target
  replicas = []
  try:
    for index in range(2):
      with tf.Graph().as_default():
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
        step = tf.train.get_or_create_global_step()
        optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
          OwnVariables(), 2, replica_index=index, on_uneven=on_uneven)
        train = optimizer.minimize(-w, step)
        assert [v.op.name for v in tf.global_variables()] == ["w", "global_step", "w/m"]
        replicas.append((tf.Session(target), optimizer, train, [w, step]))
        if index == 0:
          replicas[0][0].run(tf.global_variables_initializer())
          replicas[0][0].run(optimizer.chief_init_op)
        else:
          replicas[1][0].run(optimizer.local_step_init_op)
    (first, looks, train, values), (second, leaves, other_train, _) = replicas
    options = tf.RunOptions(timeout_in_ms=60000)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
      waits = threads.submit(first.run, train, options=options)
      second.run(other_train, options=options)
      waits.result(60)
      waits = threads.submit(first.run, train, options=options)
      harness.wait_until(lambda: rounds.view_rounds(second.run(leaves.look)).arrived[0])
      second.run(leaves.leave_op, options=options)
      waits.result(60)
    assert first.run(values) == [3.0, 2]  # 1 + 2
    assert rounds.view_rounds(first.run(looks.look)).taken == [2, 1]
  finally:
    (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


@pytest.mark.slow
def test_an_optimizer_with_further_variables_for_a_second_update_is_refused():
  def make(name, shape, initializer, trainable, use_resource):
    return tf.Variable(lambda: initializer(shape), trainable=trainable, name=name,
                       use_resource=use_resource)

  with tf.Graph().as_default():
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      OwnVariables(make), 2, replica_index=0, on_uneven="pad")
    with pytest.raises(ValueError, match="OwnVariables made new variables .w/m_1\\) .* "
                                         "tf.get_variable"):
      optimizer.minimize(w, tf.train.get_or_create_global_step())


@pytest.mark.slow
def test_a_join_runs_nothing_that_a_step_waits_for():
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    count = tf.get_variable("count", [], tf.int32, tf.zeros_initializer(), use_resource=True)
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.MomentumOptimizer(0.5, 0.9), 1, replica_index=0)
    with tf.control_dependencies([count.assign_add(1)]):  # as those of tf.GraphKeys.UPDATE_OPS
      train = optimizer.minimize(tf.square(w - 1.0), tf.train.get_or_create_global_step())
    for op in (tf.global_variables_initializer(), optimizer.chief_init_op, optimizer.look,
               optimizer.resend):
      session.run(op)
    assert session.run(count) == 0
    session.run(train)
    assert session.run(count) == 1
    session.run(optimizer.leave_op)
    assert session.run(count) == 1


@pytest.mark.slow
def test_a_resend_never_stands_in_the_way():
  with tf.Graph().as_default() as graph:
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 1, replica_index=0)
    w = tf.get_variable("w", [100000], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(tf.reduce_sum(w), step)
    init = tf.global_variables_initializer()
  with tf.Session(graph=graph) as session:
    session.run(init)
    session.run(optimizer.chief_init_op)
    done = threading.Event()

    def resend():
      while not done.is_set():
        session.run(optimizer.resend)

    resending = threading.Thread(target=resend)
    resending.start()
    try:
      for _ in range(300):
        session.run(train, options=tf.RunOptions(timeout_in_ms=60000))
    finally:
      done.set()
      resending.join(60)
    assert session.run(step) == 300
    # One that has come gets none; one that has not gets one at most, and the next step is its own.
    for _ in range(3):
      session.run(optimizer.resend)
    assert session.run([train, *optimizer.round_result[:3]])[2:] == [301, True]
