from __future__ import annotations

import inspect
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.pipeline import classic
from tests.training import local_loop, local_server
from tf1ps import cluster
from tf1ps.checkpoint import checkpoints, global_step
from tf1ps.cluster import server as server_lib
from tf1ps.compat import worker_service
from tf1ps.graph import TooLargeError
from tf1ps.session import initialise


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def test_takes_the_arguments_of_stock_at_their_places():
  stock = inspect.signature(tf.train.MonitoredTrainingSession).parameters
  ours = inspect.signature(tf1ps.MonitoredTrainingSession).parameters
  assert list(ours)[:len(stock)] == list(stock)
  for name, parameter in stock.items():
    assert ours[name].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    if name not in ("save_checkpoint_secs", "save_checkpoint_steps", "save_summaries_steps",
                    "save_summaries_secs"):  # "as if it had not been given", an object of its own
      assert ours[name].default == parameter.default, name
  # save_graph_def came to stock after 1.15.
  assert all(parameter.kind == inspect.Parameter.KEYWORD_ONLY
             for name, parameter in ours.items() if name not in [*stock, "save_graph_def"])


SESSIONS = {"stock": tf.train.MonitoredTrainingSession, "ours": tf1ps.MonitoredTrainingSession}


class Recorder(tf.train.SessionRunHook):
  """Writes down each call with its name, and what it was called with."""

  def __init__(self, name, calls, fetch=None):
    self._name, self._calls, self._fetch = name, calls, fetch

  def begin(self):
    self._calls.append((self._name, "begin", tf.get_default_graph().finalized))

  def after_create_session(self, session, coord):
    self._calls.append((self._name, "after_create_session", isinstance(session, tf.Session),
                        isinstance(coord, tf.train.Coordinator)))

  def before_run(self, run_context):
    self._calls.append((self._name, "before_run", run_context.original_args.fetches is not None,
                        run_context.stop_requested))
    return tf.train.SessionRunArgs(self._fetch) if self._fetch is not None else None

  def after_run(self, run_context, run_values):
    self._calls.append((self._name, "after_run", run_values.results))

  def end(self, session):
    self._calls.append((self._name, "end", isinstance(session, tf.Session)))


def calls_of_hooks(make, directory):
  calls = []
  with tf.Graph().as_default():
    model = local_loop.Model()
    with make("", True, str(directory), None, [Recorder("a", calls, model.loss),
              tf.train.StopAtStepHook(num_steps=2), Recorder("b", calls)],
              [Recorder("chief only", calls)], save_checkpoint_steps=1) as session:
      while not session.should_stop():
        session.run(model.train_op)
  return calls


def test_calls_hooks_as_stock_does(tmp_path):
  stock = calls_of_hooks(SESSIONS["stock"], tmp_path / "stock")
  assert calls_of_hooks(SESSIONS["ours"], tmp_path / "ours") == stock
  assert len(stock) == 3 * (1 + 1 + 2 * 2 + 1)



def train_line(make, directory, last_step):
  """Fits a line by gradient descent; returns the losses and the variables at the end."""
  losses = []
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    x = tf.constant(np.linspace(-1, 1, 8), tf.float32)
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(0.5), use_resource=True)
    b = tf.get_variable("b", [], initializer=tf.constant_initializer(-0.5), use_resource=True)
    loss = tf.reduce_mean(tf.square(w * x + b - (3 * x + 2)))
    update = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=step)
    with make(checkpoint_dir=directory, save_checkpoint_steps=10, log_step_count_steps=None,
              hooks=[tf.train.StopAtStepHook(last_step=last_step)]) as session:
      while not session.should_stop():
        losses.append(session.run([loss, update])[0])
  reader = tf.train.NewCheckpointReader(checkpoints.latest_checkpoint(directory))
  return losses, {name: reader.get_tensor(name).tolist()
                  for name in reader.get_variable_to_shape_map()}


@pytest.mark.slow
def test_trains_to_the_same_numbers_as_stock_also_over_a_restart(tmp_path):
  found = {}
  for name, make in SESSIONS.items():
    directory = str(tmp_path / name)
    first = train_line(make, directory, 25)
    found[name] = (first, train_line(make, directory, 40),
                   sorted(file for file in os.listdir(directory) if file.endswith(".index")))
  assert found["ours"] == found["stock"]
  (losses, _), (more, variables), files = found["ours"]
  assert (len(losses), len(more)) == (25, 15)
  assert variables["global_step"] == 40 and abs(variables["w"] - 3.0) < 0.5
  assert len(files) == 5


def test_what_a_caller_sees_of_the_session_is_as_in_stock():
  model = local_loop.Model()
  with tf1ps.MonitoredTrainingSession() as session:
    assert isinstance(session, tf.train.MonitoredSession)
    assert session.graph is tf.get_default_graph() and session.graph.finalized
    assert session.run_step_fn(lambda step_context: step_context.session.run(model.x)) == 0.0
    fetches = {"loss": model.loss, "more": [model.train_op]}
    assert session.run(fetches, feed_dict={model.loss: 7.0}) == {"loss": 7.0, "more": [None]}
    assert not session.should_stop()
  assert not tf.get_default_graph().finalized


@pytest.mark.parametrize("make", SESSIONS.values(), ids=list(SESSIONS))
def test_a_graph_without_a_global_step_trains_also_over_a_recovery(make):
  count = tf.get_variable("x", [], initializer=tf.zeros_initializer()).assign_add(1.0)
  with make(hooks=[RaiseIn(None, 0, lose_at=3)]) as session:
    # The third step is lost for the caller.
    assert [session.run(count) for _ in range(4)] == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize("make", SESSIONS.values(), ids=list(SESSIONS))
@pytest.mark.parametrize("directory", ["checkpoint_dir", "summary_dir"])
def test_without_a_global_step_nothing_can_be_written(make, directory, tmp_path):
  tf.get_variable("x", [])
  with pytest.raises(RuntimeError, match="(?i)global step"):
    make(**{directory: str(tmp_path)})


@pytest.mark.parametrize("error", [
  tf.errors.OutOfRangeError(None, None, "the data"), StopIteration("the data")])
def test_the_end_of_the_data_in_a_step_is_a_clean_end(tmp_path, error):
  model = local_loop.Model()
  steps = []
  with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
    while not session.should_stop():
      session.run(model.train_op)
      steps.append(1)
      if len(steps) == 3:
        raise error
  assert len(steps) == 3
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-3")


def test_the_end_of_a_dataset_is_a_clean_end():
  data = tf.data.make_one_shot_iterator(tf.data.Dataset.range(4)).get_next()
  local_loop.Model()
  seen = []
  with tf1ps.MonitoredTrainingSession() as session:
    while not session.should_stop():
      seen.append(int(session.run(data)))
  assert seen == [0, 1, 2, 3]


def test_queue_runners_are_started_and_stopped():
  names = tf.train.string_input_producer(["a", "b"], shuffle=False, num_epochs=2).dequeue()
  local_loop.Model()
  seen = []
  with tf1ps.MonitoredTrainingSession(stop_grace_period_secs=60) as session:
    while not session.should_stop():
      seen.append(session.run(names))
  assert seen == [b"a", b"b", b"a", b"b"]


class RaiseIn(tf.train.SessionRunHook):
  """Raises when it is told of the n-th session; may lose the session after a step."""

  def __init__(self, error, number, lose_at=0):
    self._error, self._number, self._lose_at, self._steps = error, number, lose_at, 0

  def after_create_session(self, session, coord):
    self._number -= 1
    if not self._number:
      raise self._error

  def after_run(self, run_context, run_values):
    self._steps += 1
    if self._steps == self._lose_at:
      raise tf.errors.AbortedError(None, None, "lost")


def test_the_end_of_data_while_the_session_is_created_is_an_error():
  local_loop.Model()
  error = tf.errors.OutOfRangeError(None, None, "nothing there")
  with pytest.raises((tf.errors.OutOfRangeError, initialise.SessionCreationError),
                     match="nothing there"):
    tf1ps.MonitoredTrainingSession(hooks=[RaiseIn(error, 1)])


@pytest.mark.parametrize("error", [
  tf.errors.OutOfRangeError(None, None, "nothing there"), StopIteration("nothing there")])
def test_the_end_of_data_while_the_session_is_made_anew_is_an_error(error):
  model = local_loop.Model()
  with pytest.raises(initialise.SessionCreationError, match="creating the session: nothing there"):
    with tf1ps.MonitoredTrainingSession(hooks=[RaiseIn(error, 2, lose_at=2)]) as session:
      while not session.should_stop():
        session.run(model.train_op)


@pytest.mark.parametrize("shape, error", [
  ([], tf.errors.NotFoundError), ([2], tf.errors.InvalidArgumentError)])
@pytest.mark.parametrize("make", [
  lambda directory: tf1ps.MonitoredTrainingSession(checkpoint_dir=directory),
  lambda directory: tf1ps.Supervisor(logdir=directory).prepare_or_wait_for_session()])
def test_a_program_catches_a_checkpoint_of_another_model_as_tensorflows_error(
    tmp_path, make, shape, error):
  with tf.Graph().as_default():
    local_loop.Model()
    with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)):
      pass
  tf.train.get_or_create_global_step()
  tf.get_variable("x" if shape else "y", shape)
  with pytest.raises(error) as raised:
    make(str(tmp_path))
  assert isinstance(raised.value, checkpoints.CheckpointError)


def test_a_truncated_checkpoint_met_in_a_recovery_is_an_error(tmp_path):
  model = local_loop.Model()

  def truncate(step):
    if step == 3:
      (tmp_path / "model.ckpt-0.data-00000-of-00001").write_bytes(b"")
      raise tf.errors.AbortedError(None, None, "lost")

  with pytest.raises(checkpoints.CheckpointError, match=(
      r"^no checkpoint in .* can be used: .* is damaged in .*/model\.ckpt-0\.data-")):
    with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(tmp_path),
                                        hooks=[After(truncate)]) as session:
      while not session.should_stop():
        session.run(model.train_op)


def test_a_ps_that_is_lost_while_the_last_checkpoint_is_saved(tmp_path):
  model, errors = local_loop.Model(), [tf.errors.UnavailableError(None, None, "lost")]

  class Saver(tf.train.Saver):
    def save(self, session, path, global_step=None, **kwargs):
      if global_step == 5 and errors:
        raise errors.pop()
      return super().save(session, path, global_step=global_step, **kwargs)

  with tf1ps.MonitoredTrainingSession(
      checkpoint_dir=str(tmp_path), save_checkpoint_steps=2,
      scaffold=tf.train.Scaffold(saver=Saver()),
      hooks=[tf.train.StopAtStepHook(last_step=5)]) as session:
    while not session.should_stop():
      session.run(model.train_op)
  assert not errors  # the state is that of step 4 again
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-4")


def test_a_recovery_that_fails_at_the_end_is_the_error(monkeypatch):
  model = local_loop.Model()

  class Hook(cluster.LifecycleHook):
    def leave(self, session, finished=True):
      monkeypatch.setattr(initialise, "missing_variables", fail)
      raise tf.errors.UnavailableError(None, None, "the connection")

  def fail(*unused):
    raise initialise.SessionCreationError("the ps did not come back")

  with pytest.raises(initialise.SessionCreationError, match="did not come back"):
    with tf1ps.MonitoredTrainingSession(
        hooks=[Hook(), tf.train.StopAtStepHook(last_step=5)]) as session:
      while not session.should_stop():
        session.run(model.train_op)


class After(tf.train.SessionRunHook):
  """Calls a function after each step with their count."""

  def __init__(self, function):
    self._function, self._steps = function, 0

  def after_run(self, run_context, run_values):
    self._steps += 1
    self._function(self._steps)


@pytest.mark.parametrize("error", [
  ValueError("mine"), KeyError("mine"), tf.errors.InternalError(None, None, "mine"),
  tf.errors.CancelledError(None, None, "mine"), SystemExit("mine"), KeyboardInterrupt("mine")])
def test_other_errors_leave_the_with_and_nothing_is_saved(tmp_path, error):
  model = local_loop.Model()
  with pytest.raises(type(error), match="mine"):
    with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(tmp_path)) as session:
      session.run(model.train_op)
      raise error
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-0")


def test_close_instead_of_with(tmp_path):
  model = local_loop.Model()
  session = tf1ps.MonitoredTrainingSession(checkpoint_dir=str(tmp_path))
  session.run(model.train_op)
  session.close()
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
  session.close()  # changes nothing
  assert not tf.get_default_graph().finalized


@pytest.mark.parametrize("kwargs, text", [
  ({"save_checkpoint_secs": 5, "save_checkpoint_steps": 6}, "^Can not provide both every_secs and "
   "every_steps: give save_checkpoint_secs or save_checkpoint_steps, not both; got 5 and 6"),
  ({"save_summaries_secs": 5, "save_summaries_steps": 6}, "save_summaries_secs or "
   "save_summaries_steps, not both; got 5 and 6"),
  ({"start_timeout": 0}, "start_timeout must be a positive number of seconds, got 0"),
  ({"end_timeout": -1}, "end_timeout must be a positive number"),
  ({"max_wait_secs": 0}, "max_wait_secs must be a positive number"),
  ({"heartbeat_timeout": -2}, "heartbeat_timeout must be a positive number"),
])
def test_arguments_that_cannot_be_are_refused(kwargs, text):
  local_loop.Model()
  with pytest.raises(ValueError, match=text):
    tf1ps.MonitoredTrainingSession(**kwargs)


@pytest.mark.parametrize("target", ["", "ours"])
def test_a_variable_that_no_message_can_hold_is_refused_first(target, tmp_path):
  target = target and local_server.record("monitored").target
  with tf.device("/job:worker/task:1"):
    table = tf.get_variable("table", [2 ** 29], use_resource=True)
  with tf.device("/job:worker/task:0"):
    tf.reduce_sum(table)
  with pytest.raises(TooLargeError, match="variable table has 2147483648 bytes, and the operation"):
    tf1ps.MonitoredTrainingSession(target, checkpoint_dir=str(tmp_path / "new"))
  assert not (tmp_path / "new").exists() and not tf.get_default_graph().finalized


def test_who_is_chief_is_a_matter_of_the_cluster():
  local_loop.Model()
  target = local_server.record("monitored").target
  with pytest.raises(ValueError, match="is_chief=False, but the chief of /job:worker/task:0's "
                     "cluster is /job:worker/task:0"):
    tf1ps.MonitoredTrainingSession(target, False, start_timeout=1)


def test_a_float_global_step_counts_for_every_hook(tmp_path):
  server = tf1ps.Server({"worker": harness.addresses(1)}, "worker", 0)
  step = tf.get_variable("global_step", [], initializer=tf.constant_initializer(0))
  x = tf.get_variable("x", [], initializer=tf.zeros_initializer())
  train_op = tf.train.GradientDescentOptimizer(0.1).minimize(tf.square(x - 1.0), step)
  with tf1ps.MonitoredTrainingSession(server.target, checkpoint_dir=str(tmp_path), hooks=[
      tf.train.StopAtStepHook(last_step=3),
      tf.train.SummarySaverHook(2, output_dir=str(tmp_path), summary_op=tf.summary.scalar("x", x))
  ]) as session:
    while not session.should_stop():
      session.run(train_op)
  assert checkpoints.latest_checkpoint(str(tmp_path)).endswith("-3")


class LostAfter(cluster.LifecycleHook):
  """Loses the state after some steps. Another worker, whose session goes on, makes a first step."""

  def __init__(self, target, steps):
    self._address, self._left = server_lib.record_of(target).cluster.task.address, steps

  def begin(self):
    self._step = tf.train.get_global_step().assign_add(1).op

  def on_state_begun(self, session, checkpoint):
    session.run(self._step)

  def before_run(self, run_context):
    self._left -= 1
    if self._left == -1:
      worker_service.cleanup_all(self._address, ["worker"], harness.LIMIT)
      raise tf.errors.AbortedError(None, None, "the state is lost")


def test_what_is_lost_is_counted_from_the_checkpoint(tmp_path, caplog):
  server = tf1ps.Server({"worker": harness.addresses(1)}, "worker", 0)
  model, steps = local_loop.Model(), global_step.MAX_STEPS  # after which the chief asks for it
  with tf1ps.MonitoredTrainingSession(server.target, checkpoint_dir=str(tmp_path), hooks=[
      LostAfter(server.target, steps)]) as session:
    for _ in range(steps + 1):
      session.run(model.train_op)
  # The other one's first step stands in the checkpoint, and the second came after the restore.
  assert "the job goes back to step 1: " in caplog.text


def checkpoints_of(directory, **kwargs):
  model = local_loop.Model()
  with tf1ps.MonitoredTrainingSession(checkpoint_dir=str(directory), **kwargs) as session:
    session.run(model.train_op)
  return checkpoints.listed_checkpoints(str(directory))


@pytest.mark.parametrize("kwargs, count", [
  ({}, 2), ({"save_checkpoint_secs": None}, 0), ({"save_checkpoint_steps": None}, 0),
  ({"save_checkpoint_secs": 0}, 0), ({"save_checkpoint_steps": -1}, 0),
  ({"save_checkpoint_secs": None, "save_checkpoint_steps": 5}, 2)])
def test_whether_checkpoints_are_saved_is_told_as_to_stock(tmp_path, kwargs, count):
  assert len(checkpoints_of(tmp_path, **kwargs)) == count


def test_a_worker_that_is_not_the_chief_saves_nothing_and_skips_the_chiefs_hooks(tmp_path):
  # Alone in its process it would wait for a chief that initialises: a scaffold that does is enough.
  model, calls = local_loop.Model(), []
  scaffold = tf.train.Scaffold(ready_for_local_init_op=tf.constant([], tf.string),
                               local_init_op=tf.global_variables_initializer())
  with tf1ps.MonitoredTrainingSession("", False, str(tmp_path), scaffold,
                                      chief_only_hooks=[Recorder("chief", calls)]) as session:
    session.run(model.train_op)
  assert (os.listdir(str(tmp_path)), calls) == ([], [])


@pytest.mark.parametrize("bad, error", [((), None), ((5,), "a.csv:5: Field 1 in record 0 is not")])
def test_queue_runners_are_started_and_what_ends_one_is_raised(tmp_path, bad, error):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 6, bad=bad)])
  tf.train.get_or_create_global_step()
  found, raised = [], None
  try:
    with tf1ps.MonitoredTrainingSession() as session:
      while not session.should_stop():
        found += session.run(batch).tolist()
  except tf.errors.InvalidArgumentError as caught:
    raised = caught.message
  assert found == list(range(1, 5 if bad else 7))
  assert raised is None if error is None else error in raised


def test_queue_runners_hold_up_no_close(tmp_path):
  stuck = classic.Stuck()
  names = tf.train.string_input_producer([classic.write(tmp_path / "a.csv", 5)])
  line = tf.py_func(stuck, [tf.TextLineReader().read(names)[1]], tf.string)
  tf.train.batch([tf.reshape(line, [])], 1)
  tf.train.get_or_create_global_step()
  with tf1ps.MonitoredTrainingSession():
    assert stuck.entered.wait(60)
  assert not stuck.has_left
  stuck.leave.set()
