from __future__ import annotations

import re
import time
import types

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import local_loop, stock_tasks
from tf1ps.checkpoint import checkpoints
from tf1ps.session import initialise, session_creator
from tf1ps.session.settings import SessionSettings


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def make(**kwargs):
  kwargs = dict({"is_chief": True, "scaffold": tf.train.Scaffold()}, **kwargs)
  return session_creator.PlainSessionCreator(SessionSettings(**kwargs))


def test_initialises_what_is_local_and_what_is_not():
  model = local_loop.Model()
  local = tf.get_local_variable("local", [], initializer=tf.constant_initializer(3.0))
  creator = make()
  session = creator.create_session()
  assert session.run([model.x, local]) == [0.0, 3.0]
  assert (creator.session, creator.sessions) == (session, 1)
  session.close()


def save(directory, model, x):
  """Saves a checkpoint with a value of x; returns its saver."""
  assign, saver = model.x.assign(x), tf.train.Saver()
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(assign)
    saver.save(session, str(directory / "model.ckpt"), global_step=1)
  return saver


def test_restores_the_last_checkpoint(tmp_path):
  model = local_loop.Model()
  saver = save(tmp_path, model, 7.0)
  creator = make(checkpoint_dir=str(tmp_path), scaffold=tf.train.Scaffold(saver=saver))
  with creator.create_session() as session:
    assert session.run(model.x) == 7.0


def test_a_lost_state_file_is_no_empty_directory(tmp_path):
  saver = save(tmp_path, local_loop.Model(), 7.0)
  (tmp_path / "checkpoint").unlink()
  creator = make(checkpoint_dir=str(tmp_path), scaffold=tf.train.Scaffold(saver=saver))
  with pytest.raises(checkpoints.CheckpointError, match="has checkpoints, but no state file"):
    creator.create_session()


def test_the_end_of_data_in_it_is_an_error():
  local_loop.Model()
  nothing = tf.data.make_one_shot_iterator(tf.data.Dataset.range(0)).get_next()
  creator = make(scaffold=tf.train.Scaffold(local_init_op=nothing.op))
  with pytest.raises(initialise.SessionCreationError, match="(?s)creating .*nd of sequence"):
    creator.create_session()


def test_what_may_pass_is_tried_again_until_the_limit(set_timing, monkeypatch):
  set_timing(session_creator, retry_pause=0.01)
  local_loop.Model()
  left = [2]

  def init_fn(scaffold, session):
    left[0] -= 1
    if left[0] >= 0:
      raise tf.errors.UnavailableError(None, None, "not yet")

  creator = make(scaffold=tf.train.Scaffold(init_fn=init_fn))
  creator.create_session().close()
  assert (left, creator.sessions) == ([-1], 1)
  left[0] = 10**9
  now = [0.0]  # time passes between the tries alone, however busy the machine is
  monkeypatch.setattr(session_creator, "time", types.SimpleNamespace(
    monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + 40.0)))
  creator = make(scaffold=tf.train.Scaffold(init_fn=init_fn), start_timeout=100.0)
  with pytest.raises(initialise.SessionCreationError, match="no session on '' within 100 s: not y"):
    creator.create_session()
  assert left == [10**9 - 4]


@pytest.mark.parametrize("asks, text", [
  (True, "^Variables not initialized: global_step, x. A session without a master is this process"),
  (False, "^Init operations did not make model ready. Variables not initialized: global_step, x.")])
def test_without_a_master_no_chief_is_awaited(asks, text):
  local_loop.Model()
  ready = None if asks else tf.zeros([0], tf.string)
  with pytest.raises(initialise.SessionCreationError, match=text):
    make(is_chief=False, scaffold=tf.train.Scaffold(
      ready_for_local_init_op=ready)).create_session()


def test_a_worker_without_a_master_that_needs_no_chief_is_ready():
  local = tf.get_local_variable("local", [], initializer=tf.constant_initializer(3.0))
  with make(is_chief=False).create_session() as session:
    assert session.run(local) == 3.0


@pytest.mark.parametrize("which", ["init_op", "local_init_op"])
def test_an_initialisation_that_waits_for_ever_ends_at_the_limit(which):
  never = tf.queue.FIFOQueue(1, [tf.int32], [[]]).dequeue().op
  creator = make(scaffold=tf.train.Scaffold(**{which: never}), max_wait_secs=0.2)
  with pytest.raises(initialise.SessionTimeoutError, match=(
      "^Session was not ready after waiting 0 secs .max_wait_secs.: an init_op, a restore or a "
      "local_init_op has not ended")) as caught:
    creator.create_session()
  assert isinstance(caught.value, tf.errors.DeadlineExceededError)
  assert isinstance(caught.value, initialise.SessionCreationError) and creator.session is None


@pytest.mark.slow
def test_a_worker_is_ready_when_the_chief_is(start, tmp_path):
  workers, files = harness.addresses(2), [str(tmp_path / "go"), str(tmp_path / "done")]
  chief = start("chief", stock_tasks.train, workers, 0, *files)
  worker = start("worker", stock_tasks.train, workers, 1, *files)
  chief.wait_for("up at")
  worker.wait_for("waiting for the chief to initialise 2 variables, such as")
  began = time.monotonic()  # the processes have the same clock
  open(files[0], "w").close()
  ready = [float(task.wait_for("ready at").split()[-1]) for task in (chief, worker)]
  # Two seconds at most on a quiet machine; stock looks every thirty.
  assert began < ready[1] < ready[0] + 25.0
  assert (worker.wait(), chief.wait()) == (0, 0)
  for task in (chief, worker):
    said = [line for line in task.lines
            if "is not the target of a tf1ps.Server in this process" in line]
    assert len(said) == 1, task.output  # for two sessions
    assert "grpc://" in said[0] and "no ps is released" in said[0]


def test_a_chief_that_never_comes_is_an_error_with_the_names(start):
  task = start("worker", stock_tasks.wait_for_a_chief, harness.addresses(1))
  assert task.wait() == 0
  line = task.wait_for("SessionTimeoutError")
  assert re.search(r"Session was not ready after waiting 2 secs \(max_wait_secs\): Variables not "
                   r"initialized: global_step, x\. The chief initialises them", line)
  assert float(line.split()[0]) >= 1.5


def test_a_server_that_is_not_there_is_an_error(start):
  (address,) = harness.addresses(1)
  task = start("worker", stock_tasks.connect_to_nobody, address)
  assert task.wait() == 0
  line = task.wait_for("connecting to 'grpc://%s' did not end within " % address)
  assert float(line.split()[0]) >= 1.5
