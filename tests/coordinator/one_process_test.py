"""A coordinator whose ps and workers are servers in the test's process."""
from __future__ import annotations

import contextlib
import re
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.harness import LIMIT
from tf1ps.cluster import ClusterError, JobLostError, TaskUnavailableError, probe_task
from tf1ps.coordinator import (
  ClusterCoordinator,
  FunctionError,
  PerWorkerValues,
  StepCancelledError,
  StepError,
  cluster_coordinator,
  workers,
)
from tf1ps.placement import count_lookups
from tf1ps.transfer import embedding_lookup, run_length


class Tasks:
  """Two ps and two workers that serve, and the server of a chief."""

  def __init__(self):
    self.jobs = {"chief": harness.addresses(1), "ps": harness.addresses(2),
                 "worker": harness.addresses(2)}
    self.servers = [tf1ps.Server(self.jobs, job, index) for job in ("ps", "worker")
                    for index in range(2)]
    self.threads = [threading.Thread(target=server.join, kwargs={"exit": False}, daemon=True)
                    for server in self.servers]
    for thread in self.threads:
      thread.start()

  def chief(self):
    return tf1ps.Server(self.jobs, "chief", 0)

  def end_reasons(self):
    for thread in self.threads:
      thread.join(LIMIT)
    return {server.end_reason for server in self.servers}


def table():
  return tf.get_variable("table", [9, 20], initializer=tf.zeros_initializer())


def train(iterator, rate):
  """One step: each row of the table that the batch names moves by the rate."""
  rows = iterator.get_next()
  step = tf.train.get_or_create_global_step()
  looked_up = tf.nn.embedding_lookup(list(table()), rows, partition_strategy="div")
  loss = tf.reduce_sum(looked_up)
  made = tf.train.GradientDescentOptimizer(rate).minimize(loss, global_step=step)
  with tf.control_dependencies([made]):
    return {"rows": tf.identity(rows), "lookups": count_lookups(loss)}


def sums():
  return tf.reduce_sum(tf.concat(list(table()), 0), axis=1)


def batches():
  return tf.data.Dataset.range(9).repeat().batch(3)


@pytest.fixture(scope="module")
def tasks():
  return Tasks()


@pytest.fixture(scope="module")
def coordinator(tasks, tmp_path_factory):
  with ClusterCoordinator(tasks.chief(), str(tmp_path_factory.mktemp("run")),
                          partitioner=tf.fixed_size_partitioner(2)) as made:
    made.build(sums)
    made.build(train, (iter(made.create_per_worker_dataset(batches)), 0.5))
    yield made
  assert all("the job has ended" in reason for reason in tasks.end_reasons())


@pytest.mark.slow
def test_steps_on_two_workers_change_one_sharded_table(coordinator):
  dataset = iter(coordinator.create_per_worker_dataset(batches))
  results = [coordinator.schedule(train, (dataset,), {"rate": 0.5}) for _ in range(18)]
  coordinator.join(60)
  assert coordinator.done() and sum(coordinator.completed.values()) == 18
  rows = np.concatenate([each["rows"] for each in coordinator.fetch(results)])
  # As in one process: each look at a row moves its 20 numbers by the rate.
  expected = -0.5 * 20 * np.bincount(rows, minlength=9)
  assert np.allclose(coordinator.schedule(sums).fetch(LIMIT), expected)
  on_ps_0 = int(np.sum(rows < 5))
  lookups = [each["lookups"] for each in coordinator.fetch(results)]
  assert {task: sum(each[task] for each in lookups) for task in lookups[0]} == {
    "/job:ps/task:0": on_ps_0, "/job:ps/task:1": len(rows) - on_ps_0}
  placed = [(tuple(v.shape.as_list()), v.device) for v in coordinator.graph.get_collection(
    tf.GraphKeys.GLOBAL_VARIABLES) if v.op.name.startswith("table")]
  assert placed == [((5, 20), "/job:ps/task:0"), ((4, 20), "/job:ps/task:1")]


def fails_if_negative(x):
  with tf.control_dependencies([tf.assert_non_negative(x, message="x is negative")]):
    return tf.identity(x)


@pytest.mark.slow
def test_the_error_of_a_step_is_raised_by_join_and_the_rest_is_cancelled(coordinator):
  coordinator.schedule(fails_if_negative, (1.0,)).fetch(LIMIT)
  bad = coordinator.schedule(fails_if_negative, (-1.0,))
  with pytest.raises(StepError, match=r"step \d+ \(fails_if_negative\) failed on /job:worker/task:"
                     r"\d: InvalidArgumentError: .*x is negative"):
    coordinator.join(LIMIT)
  with pytest.raises(StepError) as caught:
    bad.fetch()
  assert caught.value.number == bad.number
  assert isinstance(caught.value.__cause__, tf.errors.InvalidArgumentError)
  assert coordinator.schedule(fails_if_negative, (2.0,)).fetch(LIMIT) == 2.0


def test_the_error_of_a_step_is_raised_by_the_next_schedule(coordinator):
  with pytest.raises(StepError):
    coordinator.schedule(fails_if_negative, (-1.0,))
    for _ in range(5000):
      coordinator.schedule(fails_if_negative, (1.0,))
  try:
    coordinator.join(LIMIT)
  except StepCancelledError:
    pass


def test_a_structure_of_results_is_fetched(coordinator):
  made = {n: [coordinator.schedule(fails_if_negative, (float(n),))] for n in range(3)}
  assert coordinator.fetch(dict(made, x="y"), LIMIT) == {0: [0.0], 1: [1.0], 2: [2.0], "x": "y"}


def numbers():
  return tf.data.Dataset.range(2)


def take(iterator):
  return iterator.get_next()


def test_the_end_of_a_per_worker_dataset_says_what_to_do(coordinator):
  ended = iter(coordinator.create_per_worker_dataset(numbers))
  with pytest.raises(StepError, match=r"OutOfRangeError.*repeat\(\) it, or schedule ranges"):
    for _ in range(9):
      coordinator.schedule(take, (ended,)).fetch(LIMIT)
  try:
    coordinator.join(LIMIT)
  except StepError:
    pass


def test_a_worker_keeps_its_own_value(coordinator):
  name = PerWorkerValues(lambda: tf.get_default_graph().seed or 0)
  assert coordinator.schedule(lambda x: tf.constant(x), (name,)).fetch(LIMIT) == 0


def where_it_runs(words):
  """Returns rows of the table, the words' numbers by a table of the task, and the task."""
  numbers = tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(
    ["a", "b"], [0, 1], tf.string, tf.int64), 1).lookup(words)
  return sums(), numbers, tf.constant(numbers.device)


def test_a_function_runs_on_the_coordinator_with_the_live_variables(coordinator):
  dataset = iter(coordinator.create_per_worker_dataset(batches))
  before, numbers, device = coordinator.run(where_it_runs, (np.array(["b", "x", "a"]),), timeout=60)
  assert list(numbers) == [1, 2, 0] and device == b"/job:chief/task:0"
  steps = sum(coordinator.completed.values())
  looked_up = coordinator.schedule(train, (dataset, 0.5)).fetch(LIMIT)["rows"]
  expected = before - 0.5 * 20 * np.bincount(looked_up, minlength=9)
  assert np.allclose(coordinator.run(where_it_runs, (np.array(["a"]),))[0], expected)
  # The coordinator has a dataset of its own, which goes on from run to run.
  assert [list(coordinator.run(take, (dataset,))) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
  assert sum(coordinator.completed.values()) == steps + 1


def test_a_function_that_fails_on_the_coordinator_raises_once_and_cancels_no_step(coordinator):
  with pytest.raises(StepError, match=r"\(fails_if_negative\) failed on /job:chief/task:0: Inval"):
    coordinator.run(fails_if_negative, (-1.0,))
  assert coordinator.schedule(fails_if_negative, (2.0,)).fetch(LIMIT) == 2.0
  assert coordinator.run(fails_if_negative, (3.0,)) == 3.0
  with pytest.raises(FunctionError, match="must be a function, got 3"):
    coordinator.run(3)


def make_big(n):
  return tf.fill([n], 1.5)


def test_a_result_stays_on_the_worker_until_it_is_fetched(coordinator):
  result = coordinator.schedule(make_big, (1000,), stays=True)
  coordinator.join(LIMIT)
  assert result._value is None
  assert result.fetch(LIMIT).sum() == 1500.0 and result.fetch().shape == (1000,)


@pytest.mark.slow
def test_a_late_variable_is_refused_and_disturbs_nothing(coordinator):
  def late():
    return tf.get_variable("late", [], initializer=tf.zeros_initializer()) + 1.0

  for _ in range(2):
    with pytest.raises(FunctionError, match="late makes the variable late, which has no value"):
      coordinator.schedule(late)
  assert coordinator.schedule(fails_if_negative, (2.0,)).fetch(LIMIT) == 2.0


def test_a_server_that_is_no_chief_is_refused(tasks):
  with pytest.raises(ClusterError, match="needs the server of the job chief, .*; this is "
                     "/job:ps/task:0 of a cluster with the jobs chief, ps, worker"):
    ClusterCoordinator(tasks.servers[0])


def test_steps_per_execution_is_a_number_or_auto():
  server = tf1ps.Server({"chief": harness.addresses(1), "ps": harness.addresses(1),
                         "worker": harness.addresses(1)}, "chief", 0)
  with pytest.raises(ValueError, match='must be "auto" or a number of steps, got \'many\''):
    ClusterCoordinator(server, steps_per_execution="many")


@pytest.mark.parametrize("name", [
  "steps_per_execution", "step_timeout", "max_pending", "start_timeout"])
def test_a_limit_that_is_not_positive_is_refused(tasks, name):
  server = tf1ps.Server({"chief": harness.addresses(1), "ps": harness.addresses(1),
                         "worker": harness.addresses(1)}, "chief", 0)
  with pytest.raises(ValueError, match="%s must be above 0, got 0" % name):
    ClusterCoordinator(server, **{name: 0})


def count(iterator):
  """A step that adds the number of its batch to a sum; returns the sum after it."""
  number = iterator.get_next()
  total = tf.get_variable("total", [], tf.int64, initializer=tf.zeros_initializer())
  step = tf.train.get_or_create_global_step()
  with tf.control_dependencies([tf.assign_add(step, 1)]):
    return number, tf.assign_add(total, number, use_locking=True)


def total_of(server, dataset_fn, steps, at_once=4):
  """Runs steps on one worker, four in a run; returns the results, and the error of the join."""
  with ClusterCoordinator(server, steps_per_execution=at_once, start_timeout=LIMIT) as coordinator:
    dataset = iter(coordinator.create_per_worker_dataset(dataset_fn))
    coordinator.build(count, (dataset,))
    results = [coordinator.schedule(count, (dataset,)) for _ in range(steps)]
    try:
      coordinator.join(60)
      error = None
    except StepError as caught:
      error = caught
    return results, error, coordinator.completed


def one_worker():
  jobs = {"chief": harness.addresses(1), "ps": harness.addresses(1),
          "worker": harness.addresses(1)}
  for job in ("ps", "worker"):
    server = tf1ps.Server(jobs, job, 0)
    threading.Thread(target=server.join, kwargs={"exit": False}, daemon=True).start()
  return tf1ps.Server(jobs, "chief", 0)


def serve(jobs, job, index):
  server = tf1ps.Server(jobs, job, index)

  def wait():
    with contextlib.suppress(JobLostError):  # the end of a job that fails
      server.join(exit=False)

  threading.Thread(target=wait, daemon=True).start()


def count_up(step):
  """A step of a job without a dataset."""
  total = tf.get_variable("count", [], tf.int64, initializer=tf.zeros_initializer())
  return tf.assign_add(total, 1, use_locking=True) + 0 * step


@pytest.mark.slow
def test_a_worker_may_come_while_the_job_runs():
  jobs = {"chief": harness.addresses(1), "ps": harness.addresses(1),
          "worker": harness.addresses(2)}
  serve(jobs, "ps", 0)
  serve(jobs, "worker", 0)
  with ClusterCoordinator(tf1ps.Server(jobs, "chief", 0), start_timeout=60) as coordinator:
    assert coordinator.schedule(count_up, (np.int64(1),)).fetch(60) == 1
    serve(jobs, "worker", 1)
    made = 1

    def has_both():
      nonlocal made
      coordinator.fetch([coordinator.schedule(count_up, (np.int64(n),)) for n in range(20)], 60)
      made += 20
      return all(coordinator.completed.values())

    harness.wait_until(has_both, 60, what="steps of the worker that came later")
    assert sum(coordinator.completed.values()) == made and coordinator.retries == 0
    assert coordinator.schedule(count_up, (np.int64(1),)).fetch(60) == made + 1


@pytest.mark.slow
def test_a_job_without_a_worker_names_each_address(monkeypatch):
  class Watch(workers.WorkerWatch):
    """Has no patience with the workers, which never come; the ps has its time."""

    def __init__(self, threads, queue, limit):
      assert limit == LIMIT
      super().__init__(threads, queue, 2.0)

  monkeypatch.setattr(cluster_coordinator, "WorkerWatch", Watch)
  monkeypatch.setattr(workers, "probe_task", lambda task: probe_task(task, LIMIT))
  jobs = {"chief": harness.addresses(1), "ps": harness.addresses(1),
          "worker": harness.addresses(2)}
  serve(jobs, "ps", 0)
  with pytest.raises(TaskUnavailableError) as caught:
    with ClusterCoordinator(tf1ps.Server(jobs, "chief", 0), start_timeout=LIMIT) as coordinator:
      coordinator.schedule(count_up, (np.int64(1),))
      coordinator.join()
  assert str(caught.value).startswith("steps wait, and no worker answers after ")
  for index, address in enumerate(jobs["worker"]):
    assert "/job:worker/task:%d at %s: refused" % (index, address) in str(caught.value)


@pytest.mark.slow
def test_a_job_without_a_ps_names_it():
  jobs = {"chief": harness.addresses(1), "ps": harness.addresses(1),
          "worker": harness.addresses(1)}
  with pytest.raises(Exception, match="/job:ps/task:0 at %s: refused" % jobs["ps"][0]):
    with ClusterCoordinator(tf1ps.Server(jobs, "chief", 0), start_timeout=4) as coordinator:
      coordinator.schedule(count_up, (np.int64(1),))


def waits_forever():
  return tf.FIFOQueue(1, [tf.float32], shared_name="empty").dequeue()


@pytest.mark.slow
def test_a_step_that_does_not_end_has_a_limit():
  with ClusterCoordinator(one_worker(), step_timeout=0.5) as coordinator:
    coordinator.schedule(waits_forever)
    with pytest.raises(StepError, match=r"step 1 \(waits_forever\) failed .*DeadlineExceeded.*"
                       "It was lost 5 times"):
      coordinator.join(120)
    assert coordinator.retries == 4


def whole_table():
  """The table, the sums of Momentum for it, and the global step."""
  train_on(tf.constant([0], tf.int64))
  variables = {v.op.name: v for v in tf.global_variables()}
  found = [tf.concat([variables[name] for name in sorted(variables) if re.fullmatch(
    r"table(/part_\d+)?" + slot, name)], 0) for slot in ("", "/Momentum")]
  return found + [tf.train.get_global_step().read_value()]


def train_on(rows):
  """One step that moves some rows."""
  looked_up = embedding_lookup(table(), rows)
  return tf.train.MomentumOptimizer(0.5, 0.5).minimize(
    tf.reduce_sum(looked_up), tf.train.get_or_create_global_step())


@pytest.mark.slow
def test_a_checkpoint_of_two_shards_is_restored_into_three_and_into_one(tmp_path):
  expected = [np.zeros([9, 20]), np.zeros([9, 20]), 0]
  for shards in (2, 3, 1):
    with tf.Graph().as_default(), tf1ps.local_cluster(
        2, 1, chief=True) as cluster, ClusterCoordinator(
        cluster.chief, str(tmp_path),
        partitioner=tf.fixed_size_partitioner(shards)) as coordinator:
      coordinator.build(train_on, (np.array([0]),))
      found = coordinator.run(whole_table, timeout=60)
      assert all(np.allclose(*both) for both in zip(found, expected)), (shards, found)
      for row in (8, shards, shards):
        coordinator.schedule(train_on, (np.array([row]),))
      coordinator.join(60)
      expected = coordinator.run(whole_table)
      parts = [v.shape.as_list() for v in coordinator.graph.get_collection(
        tf.GraphKeys.TRAINABLE_VARIABLES)]
      assert len(parts) == shards and sum(rows for rows, _ in parts) == 9
  assert expected[2] == 9 and np.count_nonzero(expected[0].any(axis=1)) == 4  # rows 8, 2, 3, 1


@pytest.mark.slow
def test_several_steps_in_a_run_follow_each_other():
  results, error, completed = total_of(one_worker(), lambda: tf.data.Dataset.range(1, 19), 18)
  assert error is None and completed == {"/job:worker/task:0": 18}
  assert [each.fetch() for each in results] == [(n, n * (n + 1) // 2) for n in range(1, 19)]


def test_a_coordinator_finds_the_steps_of_a_run_by_itself(monkeypatch, caplog):
  """The values are those of single steps."""
  for name, value in (("_SKIPPED", 1), ("_RUNS", 3), ("_STEPS", 3), ("_SECONDS", 0.0),
                      ("_GAIN", 1e9), ("_CLEAR_GAIN", 1e9), ("_RUN", 1e9),
                      ("_PER_RUN", 1e9), ("_MOST_COST", 1e9)):
    monkeypatch.setattr(run_length, name, value)
  with caplog.at_level("DEBUG", "tf1ps"):
    results, error, completed = total_of(
      one_worker(), lambda: tf.data.Dataset.range(1, 201), 200, "auto")
  assert error is None and completed == {"/job:worker/task:0": 200}
  assert [each.fetch() for each in results] == [(n, n * (n + 1) // 2) for n in range(1, 201)]
  assert "count on /job:worker/task:0: 16 steps per run from here on: " in caplog.text


@pytest.mark.slow
def test_an_error_in_a_run_of_several_names_its_step():
  results, error, _ = total_of(one_worker(), lambda: tf.data.Dataset.range(1, 7), 12)
  assert error.number == 7 and "OutOfRangeError" in str(error)
  ended = []
  for step in results:
    try:
      ended.append(step.fetch(0)[0])
    except (StepError, StepCancelledError) as caught:
      ended.append(str(caught))
  lost = "ran, but its result was lost, because step 7 of the same run failed"
  assert sum(lost in str(text) for text in ended) in (0, 2)
  assert ended[:4] == [1, 2, 3, 4] or lost in ended[5]
  assert all("did not run" in text for text in ended[7:])
