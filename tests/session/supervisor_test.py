from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness, session_tasks
from tests.training import local_loop, local_server
from tf1ps.checkpoint import checkpoints
from tf1ps.cluster import server as server_lib
from tf1ps.replication import rounds
from tf1ps.session import initialise, monitored_session, process_end, supervised_session
from tf1ps.state import heartbeat
from tf1ps.state import run as run_lib


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@functools.lru_cache(maxsize=None)
def stock_server():
  return tf.train.Server.create_local_server()


def saved(directory):
  """The value of x in the last checkpoint, and the checkpoint's name."""
  path = checkpoints.latest_checkpoint(str(directory))
  return tf.train.load_checkpoint(path).get_tensor("x"), path.rsplit("/", 1)[1]


def test_takes_the_arguments_of_stock_at_their_places():
  stock = inspect.signature(tf.train.Supervisor.__init__).parameters
  ours = inspect.signature(tf1ps.Supervisor.__init__).parameters
  assert list(ours)[:len(stock)] == list(stock)
  for name, parameter in stock.items():
    assert ours[name].default == parameter.default, name
  assert all(ours[name].kind == inspect.Parameter.KEYWORD_ONLY for name in set(ours) - set(stock))


def test_has_every_public_name_of_stock(tmp_path):
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path))
  missing = [name for name in dir(tf.train.Supervisor)
             if not name.startswith("_") and not hasattr(supervisor, name)]
  assert missing == []


def test_trains_saves_at_stop_and_restores(tmp_path):
  for begins, ends in ((0, 3), (3, 6)):
    with tf.Graph().as_default():
      model = local_loop.Model()
      supervisor = tf1ps.Supervisor(logdir=str(tmp_path), global_step=model.global_step)
      session = supervisor.prepare_or_wait_for_session("")
      assert session.run(model.x) == begins
      for _ in range(3):
        session.run(model.train_op)
      assert not supervisor.should_stop()
      supervisor.stop()
      assert supervisor.should_stop()
      assert saved(tmp_path) == (ends, "model.ckpt-%d" % ends)
      assert session.run(model.x) == ends  # stop leaves the session open, as stock does
      session.close()
      session.close()
      with pytest.raises(RuntimeError, match="closed Session"):
        session.run(model.x)


def test_its_session_is_a_session_of_tensorflow(tmp_path):
  model = local_loop.Model()
  fed = tf.placeholder(tf.float32, [])
  total = fed + model.x
  supervisor = tf1ps.Supervisor(logdir=None)
  with supervisor.prepare_or_wait_for_session() as session:
    assert isinstance(session, tf.Session) and session.graph is tf.get_default_graph()
    assert tf.get_default_session() is session
    session.run(model.train_op)
    assert model.loss.eval() == 1.0
    assert session.make_callable(total, [fed])(2.0) == 3.0
    supervisor.saver.save(session, str(tmp_path / "by_hand"), global_step=1)
    beside = []
    thread = threading.Thread(target=lambda: beside.append(session.run(model.x)))
    thread.start()
    thread.join()
    assert beside == [1.0]
  assert tf.get_default_session() is None
  assert checkpoints.checkpoint_exists(str(tmp_path / "by_hand-1"))


def test_an_error_in_the_block_leaves_the_session():
  model = local_loop.Model()
  supervisor = tf1ps.Supervisor()
  with pytest.raises(KeyError):
    with supervisor.prepare_or_wait_for_session() as session:
      session.run(model.train_op)
      raise KeyError("x")
  with pytest.raises(RuntimeError, match="closed Session"):
    session.run(model.x)


def test_a_managed_session_ends_cleanly_at_the_end_of_the_input(tmp_path):
  model = local_loop.Model()
  numbers = tf.train.limit_epochs(tf.constant(1.0), 3)
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), global_step=model.global_step)
  with supervisor.managed_session() as session:
    while not supervisor.should_stop():
      session.run([numbers, model.train_op])
  assert saved(tmp_path)[0] in (3.0, 4.0)  # the update may come before the end of the input


def test_a_managed_session_raises_its_error_and_can_be_opened_again(tmp_path):
  model = local_loop.Model()
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), global_step=model.global_step)
  with pytest.raises(ValueError, match="of the block"):
    with supervisor.managed_session() as session:
      session.run(model.train_op)
      raise ValueError("of the block")
  with supervisor.managed_session() as session:
    session.run(model.train_op)
  assert saved(tmp_path)[0] >= 1.0


def test_the_run_after_a_signal_is_made_and_the_next_one_saves_and_leaves(start, tmp_path):
  """A signal may come between a program's look at should_stop() and its run."""
  task = start("worker", session_tasks.count_on_after_a_signal, str(tmp_path))
  assert task.wait() == 128 + signal.SIGTERM, task.output
  assert "counted 1 False False" in task.output and "counted 2 True" in task.output
  assert "ran on" not in task.output
  assert checkpoints.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-2"), task.output


def test_without_init_op_the_variables_are_named(tmp_path):
  local_loop.Model()
  supervisor = tf1ps.Supervisor(init_op=None, logdir=str(tmp_path))
  with pytest.raises(initialise.SessionCreationError, match="global_step, x"):
    supervisor.prepare_or_wait_for_session()


def test_init_fn_gets_the_session():
  model = local_loop.Model()
  started = tf.assign(model.x, 5.0)
  supervisor = tf1ps.Supervisor(init_fn=lambda session: session.run(started))
  with supervisor.managed_session() as session:
    assert session.run(model.x) == 5.0


def test_a_graph_without_a_global_step_is_saved(tmp_path):
  x = tf.get_variable("x", [], initializer=tf.zeros_initializer(), use_resource=True)
  up = tf.assign_add(x, 1.0)
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), global_step=None)
  with supervisor.managed_session() as session:
    session.run(up)
  assert saved(tmp_path) == (1.0, "model.ckpt")


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
def test_a_float_global_step_counts(tmp_path, given):
  x = tf.get_variable("x", [], initializer=tf.zeros_initializer(), use_resource=True)
  steps = tf.get_variable("global_step", [], initializer=tf.zeros_initializer(), trainable=False)
  optimizer = tf1ps.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 1)
  train_op = optimizer.minimize(tf.square(x - 1.0), steps)
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), **(dict(global_step=steps) if given else {}))
  with supervisor.managed_session() as session:
    for _ in range(2):
      session.run(train_op)
  assert saved(tmp_path) == (1.0, "model.ckpt-2")


def test_a_global_step_of_another_name_counts(tmp_path):
  x = tf.get_variable("x", [], initializer=tf.zeros_initializer(), use_resource=True)
  steps = tf.Variable(0, name="steps", trainable=False)
  up = tf.group(tf.assign_add(x, 1.0), tf.assign_add(steps, 1))
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), global_step=steps)
  with supervisor.managed_session() as session:
    session.run(up)
  assert saved(tmp_path) == (1.0, "model.ckpt-1")


def test_writes_summaries_and_survives_one_that_needs_feeds(tmp_path, caplog):
  model = local_loop.Model()
  tf.summary.scalar("x", model.loss)
  tf.summary.scalar("fed", tf.placeholder(tf.float32, []))
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path), save_summaries_secs=0.01)
  with caplog.at_level(logging.WARNING, "tf1ps"), supervisor.managed_session() as session:
    harness.wait_until(lambda: "create the Supervisor with summary_op=None" in caplog.text)
    supervisor.summary_computed(session, tf.Summary(value=[
      tf.Summary.Value(tag="by_hand", simple_value=2.0)]))
    session.run(model.train_op)
    assert not supervisor.should_stop()
  assert caplog.text.count("a summary was not written") == 1
  tags = {value.tag for path in tmp_path.glob("events*")
          for event in tf.train.summary_iterator(str(path)) for value in event.summary.value}
  assert "by_hand" in tags


@pytest.mark.parametrize("owns, closes, files", [(True, True, 2), (False, True, 2),
                                                 (True, False, 1)])
def test_the_event_file_ends_at_stop(tmp_path, owns, closes, files):
  local_loop.Model()
  summary = tf.summary.scalar("one", 1.0)
  writer = {} if owns else dict(summary_writer=tf.summary.FileWriter(str(tmp_path)))
  supervisor = tf1ps.Supervisor(
    logdir=str(tmp_path) if owns else None, saver=None, summary_op=None, **writer)
  for _ in range(2):  # within one second, which is the name of a file
    with supervisor.managed_session(close_summary_writer=closes) as session:
      supervisor.summary_computed(session, session.run(summary))
  supervisor.summary_writer.close()
  found = [[event.WhichOneof("what") for event in tf.train.summary_iterator(str(path))]
           for path in sorted(tmp_path.glob("events*"))]
  graph = ["file_version", "graph_def", "meta_graph_def"]
  session = ["session_log", "summary", "summary"]  # the start, the first rate, the program's
  assert found == ([graph + session + ["session_log"]] * 2 if closes else [graph + session * 2])
  assert len(found) == files


def logged(directory):
  """[(status, step), ...] of the session's log in a directory's event files."""
  return [(tf.SessionLog.SessionStatus.Name(event.session_log.status), event.step)
          for path in sorted(directory.glob("events*"))
          for event in tf.train.summary_iterator(str(path)) if event.HasField("session_log")]


def test_the_event_file_has_the_start_the_checkpoints_and_the_end(tmp_path):
  model = local_loop.Model()
  writer = tf.summary.FileWriter(str(tmp_path / "events"))
  for begins in (0, 2):
    supervisor = tf1ps.Supervisor(
      logdir=str(tmp_path / "model"), global_step=model.global_step, summary_op=None,
      summary_writer=writer)
    with supervisor.managed_session(close_summary_writer=begins == 2) as session:
      for _ in range(2):
        session.run(model.train_op)
  assert logged(tmp_path / "events") == [
    ("START", 0), ("CHECKPOINT", 0), ("CHECKPOINT", 2), ("START", 2), ("CHECKPOINT", 4),
    ("STOP", 0)]
  assert not list((tmp_path / "model").glob("events*"))


@pytest.mark.parametrize("options", [dict(save_model_secs=0), dict(saver=None)])
def test_the_graph_is_there_without_a_checkpoint(tmp_path, options):
  model = local_loop.Model()
  with tf1ps.Supervisor(logdir=str(tmp_path), **options).managed_session() as session:
    session.run(model.train_op)
  assert 'name: "loss"' in (tmp_path / "graph.pbtxt").read_text()
  assert not list(tmp_path.glob("*.ckpt*"))


def test_a_variable_without_a_device_is_refused_in_a_worker():
  tf.get_variable("v", [], use_resource=False)
  with pytest.raises(ValueError, match="When using replicas, all Variables must have their device "
                                       "set: v has none"):
    tf1ps.Supervisor(is_chief=False)
  with pytest.raises(ValueError, match="When using replicas, all Variables must have their device"):
    tf.train.Supervisor(is_chief=False)


def test_a_loop_ends_at_stop_and_its_error_is_raised_there():
  local_loop.Model()
  supervisor = tf1ps.Supervisor()
  calls = []

  def work(text):
    calls.append(text)
    if len(calls) == 3:
      raise KeyError("of the loop")

  supervisor.prepare_or_wait_for_session()
  supervisor.loop(None, work, args=("call",))
  supervisor.wait_for_stop()
  with pytest.raises(KeyError, match="of the loop"):
    supervisor.stop()
  assert calls == ["call"] * 3
  process_end.end_open_sessions()


@pytest.mark.parametrize("starts", [tf.train.start_queue_runners, tf1ps.start_queue_runners])
def test_starts_the_queue_runners_once(starts):
  with tf.device("/cpu:0"):
    numbers = tf.train.range_input_producer(
      5, num_epochs=1, shuffle=False, capacity=1).dequeue()  # its thread does not end before us
  supervisor = tf1ps.Supervisor()
  seen = []
  with supervisor.managed_session() as session:
    assert supervisor.start_queue_runners(session) == []
    assert starts(sess=session, coord=supervisor.coord) == []
    while not supervisor.should_stop():
      seen.append(session.run(numbers))
  assert seen == [0, 1, 2, 3, 4]


def test_takes_the_operations_of_a_session_manager():
  local_loop.Model()
  done = tf.get_variable("done", initializer=0, collections=[], use_resource=True)
  manager = tf.train.SessionManager(
    local_init_op=done.initializer, ready_op=tf.report_uninitialized_variables())
  supervisor = tf1ps.Supervisor(session_manager=manager)
  assert supervisor.session_manager is manager
  with supervisor.managed_session() as session:
    assert session.run(done) == 0


def test_refuses_a_session_manager_of_another_kind_and_bad_limits():
  with pytest.raises(ValueError, match="session_manager must be a tf.train.SessionManager"):
    tf1ps.Supervisor(session_manager=object())
  with pytest.raises(ValueError, match="start_timeout must be a positive number"):
    tf1ps.Supervisor(start_timeout=0)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["the optimizer's", "none"])
def test_a_sync_optimizer_is_joined_and_left_without_a_hook(given):
  model = local_loop.Model()
  optimizer = tf1ps.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
  train_op = optimizer.minimize(tf.square(model.x.read_value() - 1.0), model.global_step)
  tokens, runner = optimizer.get_init_tokens_op(), optimizer.get_chief_queue_runner()
  uninitialised = tf.get_variable(
    "own", [], initializer=tf.zeros_initializer(), collections=[tf.GraphKeys.LOCAL_VARIABLES])
  options = {} if given == "none" else dict(
    local_init_op=optimizer.chief_init_op,
    ready_for_local_init_op=optimizer.ready_for_local_init_op)
  supervisor = tf1ps.Supervisor(**options)
  session = supervisor.prepare_or_wait_for_session()
  supervisor.start_queue_runners(session, [runner])
  session.run(tokens)
  for _ in range(3):
    session.run(train_op)
  assert session.run([model.global_step, uninitialised]) == [3, 0.0]
  assert sum(rounds.view_rounds(session.run(optimizer.look)).left) == 0
  supervisor.stop()
  inside = session.call_inside(lambda one: one)
  inside.hold_close()
  session.close()
  assert rounds.view_rounds(tf.Session.run(inside, optimizer.look)).left[0]
  inside.finish_close()


def replica(index):
  """The graph of a replica of two: the optimizer, its step, the loss after it, the global step."""
  with tf.Graph().as_default():
    model = local_loop.Model()
    optimizer = tf1ps.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(0.1), 2, replica_index=index)
    train_op = optimizer.minimize(tf.square(model.x.read_value() - 1.0), model.global_step)
    with tf.control_dependencies([train_op]):
      loss = tf.identity(model.x.read_value())
    return optimizer, train_op, loss, model.global_step


@pytest.mark.slow
def test_a_step_after_the_end_of_another_replica_changes_nothing(caplog):
  target = stock_server().target
  optimizer, train_op, loss, step = replica(0)
  other, others_step = replica(1)[:2]
  with tf.Session(target, graph=other.graph) as second:
    supervisor = tf1ps.Supervisor(optimizer.graph)
    with supervisor.managed_session(target) as session:
      second.run(other.local_step_init_op)
      fetches = [train_op, {"loss": loss, "step": step}]
      for _ in range(2):
        thread = threading.Thread(target=second.run, args=(others_step,))
        thread.start()
        before = session.run(fetches)
        thread.join()
      second.run(other.leave_op)
      assert not supervisor.should_stop()
      after = session.run(fetches)
      assert after[1] == {"loss": before[1]["loss"], "step": 2}
      assert supervisor.should_stop()
      assert session.run(train_op) is None and session.run(step) == 2
      session._ended_at -= 61.0  # a minute ago
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(train_op)
  assert caplog.text.count("another replica has left") == 1


# On a server of this process, whose other workers are only said to be there.


@pytest.fixture
def record(request):
  """The record of a server of this process, which drop-ins find by its target."""
  found = local_server.record(request.node.name.replace("_", "-"))
  before = server_lib._records[found.target]
  server_lib._records[found.target] = found
  yield found
  server_lib._records[found.target] = before


def run_on(record):
  return run_lib.find_run(local_server.table(record).read(), record.container)


def others_are_done(record):
  for index in (1, 2):
    local_server.Worker(record, index).say(state=heartbeat.MEMBER_DONE)


def supervised(record, directory):
  with tf.container(record.container):
    model = local_loop.Model()
  supervisor = tf1ps.Supervisor(
    is_chief=True, logdir=str(directory), global_step=model.global_step, end_timeout=harness.LIMIT)
  return model, supervisor


def test_a_program_that_simply_leaves_ends_the_job(record, tmp_path):
  model, supervisor = supervised(record, tmp_path)
  others_are_done(record)
  session = supervisor.prepare_or_wait_for_session(record.target)
  session.run(model.train_op)
  assert not run_on(record).ended
  process_end.end_open_sessions()
  assert run_on(record).ended and not run_on(record).failed
  assert saved(tmp_path)[0] == 1.0
  assert isinstance(session, supervised_session.SupervisedSession)


def test_an_initialisation_that_waits_for_ever_ends_at_the_limit(record):
  never = tf.queue.FIFOQueue(1, [tf.int32], [[]]).dequeue().op
  supervisor = tf1ps.Supervisor(is_chief=True, local_init_op=never)
  with pytest.raises(initialise.SessionTimeoutError, match="a local_init_op has not ended"):
    supervisor.prepare_or_wait_for_session(record.target, max_wait_secs=0.3)


def test_a_program_that_fails_does_not_release_the_job(record, tmp_path):
  model, supervisor = supervised(record, tmp_path)
  session = supervisor.prepare_or_wait_for_session(record.target)
  session.run(model.train_op)
  process_end.end_open_sessions(ValueError("of the program"))
  assert not run_on(record).ended


@pytest.mark.parametrize("closes", ["close", "managed", "failed"])
def test_a_session_that_was_closed_is_not_ended_with_the_process(closes):
  local_loop.Model()
  supervisor, before = tf1ps.Supervisor(), list(process_end._open)
  for _ in range(2):
    if closes == "close":
      supervisor.prepare_or_wait_for_session("").close()
    elif closes == "managed":
      with supervisor.managed_session(""):
        assert len(process_end._open) == len(before) + 2  # the session, and the one inside
    else:
      with pytest.raises(KeyError), supervisor.prepare_or_wait_for_session(""):
        raise KeyError("of the program")
    assert process_end._open == before


def test_without_a_master_a_worker_has_no_chief_to_wait_for():
  supervisor = tf1ps.Supervisor(is_chief=False)
  with supervisor.managed_session():  # a graph without variables needs none
    with pytest.raises(RuntimeError, match="^Writing a summary requires a summary writer"):
      supervisor.summary_computed(None, b"")
    with pytest.raises(RuntimeError, match="^Only chief supervisor can start standard services"):
      supervisor.start_standard_services(None)
  with tf.Graph().as_default(), tf.device("/cpu:0"):
    local_loop.Model()
    with pytest.raises(RuntimeError, match="^Variables not initialized: global_step, x. A session"):
      tf1ps.Supervisor(is_chief=False).prepare_or_wait_for_session()


def test_a_checkpoint_that_never_comes_is_awaited_within_the_limit(tmp_path):
  local_loop.Model()
  supervisor = tf1ps.Supervisor(logdir=str(tmp_path))
  with pytest.raises(tf.errors.DeadlineExceededError, match="there is no checkpoint in"):
    supervisor.prepare_or_wait_for_session(wait_for_checkpoint=True, max_wait_secs=0.1)


@pytest.mark.parametrize("index", [0, 1])
def test_is_chief_is_by_default_that_of_the_servers_task(record, index, monkeypatch):
  cluster = dataclasses.replace(record.cluster, task_index=index)
  monkeypatch.setattr(
    server_lib, "_records", {record.target: record._replace(cluster=cluster)})
  local_loop.Model()
  assert tf1ps.Supervisor().is_chief is (index == 0)
  assert tf1ps.Supervisor(is_chief=True).is_chief is True
  assert inspect.signature(tf1ps.MonitoredTrainingSession).parameters["is_chief"].default is (
    monitored_session.IS_CHIEF_BY_TASK)
  assert monitored_session.chief_or_not(
    monitored_session.IS_CHIEF_BY_TASK, server_lib.record_of(record.target)) is (index == 0)


def test_is_chief_must_fit_the_cluster(record):
  with tf.device("/job:worker/task:0"):
    local_loop.Model()
  with pytest.raises(ValueError, match="is_chief=False, but the chief"):
    tf1ps.Supervisor(is_chief=False).prepare_or_wait_for_session(record.target)
