from __future__ import annotations

import glob
import os
import resource
import time

import pytest
import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing import event_accumulator

import tf1ps
from tests import harness
from tests.training import local_loop
from tf1ps.checkpoint import global_step
from tf1ps.session import summaries


def train(directory, last_step, fail_at=None, **kwargs):
  """Trains in this process; the summary "before" is the value of x before the step."""
  with tf.Graph().as_default():
    model = local_loop.Model()
    tf.summary.scalar("before", model.loss)
    with tf1ps.MonitoredTrainingSession(
        checkpoint_dir=str(directory), save_checkpoint_secs=3600,
        hooks=[tf.train.StopAtStepHook(last_step=last_step)], **kwargs) as session:
      while not session.should_stop():
        if session.run([model.train_op, model.loss])[1] == fail_at:
          raise ValueError("enough")


def values(directory, tag):
  """[(step, value), ...] of a tag in all event files of a directory, in order of the files."""
  files = sorted(glob.glob(os.path.join(str(directory), "*.tfevents.*")), key=os.path.getmtime)
  return [(event.step, value.simple_value)
          for file in files for event in tf.train.summary_iterator(file)
          for value in event.summary.value if value.tag == tag]


@pytest.fixture(autouse=True)
def fresh_writers():
  # A process has one event file a directory: what another process would do, without another one.
  yield
  tf.summary.FileWriterCache.clear()


def test_every_n_steps_with_the_global_step_after_each(tmp_path):
  train(tmp_path, 12, save_summaries_steps=5)
  assert values(tmp_path, "before") == [(1, 0.0), (6, 5.0), (11, 10.0)]


@pytest.mark.parametrize("secs, steps", [(1e-9, [1, 2, 3]), (3600, [1])])
def test_every_n_seconds(tmp_path, secs, steps):
  train(tmp_path, 3, save_summaries_secs=secs)
  assert [step for step, _ in values(tmp_path, "before")] == steps


@pytest.mark.parametrize("kwargs", [
  {"save_summaries_steps": None}, {"save_summaries_steps": 0}, {"save_summaries_steps": -1}])
def test_none(tmp_path, kwargs):
  train(tmp_path, 3, **kwargs)
  assert values(tmp_path, "before") == []


def test_a_directory_of_their_own(tmp_path):
  train(tmp_path / "c", 3, save_summaries_steps=1, summary_dir=str(tmp_path / "s"))
  assert (values(tmp_path / "c", "before"), len(values(tmp_path / "s", "before"))) == ([], 3)


@pytest.mark.slow
def test_a_restart_goes_on(tmp_path):
  train(tmp_path, 4, save_summaries_steps=2)
  tf.summary.FileWriterCache.clear()
  began = int(time.time())  # a part of an event file's name
  harness.wait_until(lambda: time.time() > began + 1)
  train(tmp_path, 8, save_summaries_steps=2)
  # x goes on from the checkpoint; each process begins with a summary of its first step.
  assert sorted(values(tmp_path, "before")) == [(1, 0.0), (3, 2.0), (5, 4.0), (7, 6.0)]


def shown(directory, tag):
  """The steps of a tag that TensorBoard shows."""
  accumulator = event_accumulator.EventAccumulator(str(directory))
  accumulator.Reload()
  return [event.step for event in accumulator.Scalars(tag)]


def test_tensorboard_shows_a_restarted_run_once(tmp_path, set_timing):
  """Saved at 5, killed at 8, and again to 10."""
  set_timing(global_step, global_step_interval=0.0)

  def train_on(fail_at):
    with tf.Graph().as_default():
      model = local_loop.Model()
      tf.summary.scalar("before", model.loss)
      with tf1ps.MonitoredTrainingSession(
          checkpoint_dir=str(tmp_path), save_checkpoint_steps=5, save_summaries_steps=1,
          hooks=[tf.train.StopAtStepHook(last_step=10)]) as session:
        while not session.should_stop():
          if session.run([model.train_op, model.loss])[1] + 1 == fail_at:
            raise ValueError("enough")

  with pytest.raises(ValueError, match="enough"):
    train_on(8)
  tf.summary.FileWriterCache.clear()
  for path in list(tmp_path.glob("*.tfevents.*")):  # the next may have its name, of this second
    path.rename(str(path).replace(".tfevents.", ".tfevents.0."))
  assert shown(tmp_path, "before") == list(range(1, 9))
  train_on(None)
  tf.summary.FileWriterCache.clear()
  assert shown(tmp_path, "before") == list(range(1, 11))
  logs = [(event.session_log.status, event.step, event.session_log.checkpoint_path)
          for path in sorted(tmp_path.glob("*.tfevents.*"))
          for event in tf.train.summary_iterator(str(path)) if event.HasField("session_log")]
  start, checkpoint, stop = (
    tf.SessionLog.START, tf.SessionLog.CHECKPOINT, tf.SessionLog.STOP)
  saved = str(tmp_path / "model.ckpt")
  assert logs == [(start, 1, ""), (checkpoint, 0, saved), (checkpoint, 5, saved),
                  (start, 6, ""), (checkpoint, 10, saved), (stop, 0, "")]


def test_a_session_without_event_files_writes_none(tmp_path):
  train(tmp_path, 3, save_summaries_steps=None, log_step_count_steps=None)
  assert not list(tmp_path.glob("*.tfevents.*"))


def test_what_led_to_an_error_is_there(tmp_path):
  with pytest.raises(ValueError, match="enough"):
    train(tmp_path, 10, fail_at=3, save_summaries_steps=1)
  assert values(tmp_path, "before") == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]


def test_steps_a_second(tmp_path, set_timing):
  set_timing(global_step, global_step_interval=0.0)
  train(tmp_path, 25, log_step_count_steps=10)
  found = values(tmp_path, summaries.StepCounter.TAG)
  assert [step for step, _ in found] == [10, 20]
  assert all(0 < value < 1e6 for _, value in found)


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="its writer raises no error")
def test_a_file_that_cannot_be_written_costs_its_summaries_alone(tmp_path, caplog):
  summary = tf.Summary(value=[tf.Summary.Value(tag="later", simple_value=7.0)])
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  tf.summary.FileWriterCache.clear()  # other tests' writers, which the limit would meet
  with tf.Graph().as_default():
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))  # as a full disk
    try:
      for step in range(50):
        summaries.write_summary(str(tmp_path), summary, step)
      summaries.SummarySaver(None, None, str(tmp_path), save_steps=1).end(None)
      summaries.flush_summaries(str(tmp_path))
    finally:
      resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (record,) = [record for record in caplog.records if record.name == "tf1ps"]
    assert "summaries in %s are lost, and this task goes on: " % tmp_path in record.getMessage()
    began = int(time.time())
    harness.wait_until(lambda: time.time() > began + 1)
    summaries.write_summary(str(tmp_path), summary, 51)
    tf.summary.FileWriterCache.clear()
  newest = max(glob.glob(str(tmp_path / "*.tfevents.*")), key=os.path.getmtime)
  assert [event.step for event in tf.train.summary_iterator(newest) for value in event.summary.value
          if value.tag == "later"] == [51]


def test_no_steps_a_second(tmp_path, set_timing):
  set_timing(global_step, global_step_interval=0.0)
  train(tmp_path, 25, log_step_count_steps=None)
  assert values(tmp_path, summaries.StepCounter.TAG) == []


def test_steps_a_second_are_said_where_nothing_is_written(tmp_path, caplog, set_timing):
  set_timing(global_step, global_step_interval=0.0)
  caplog.set_level("INFO", "tf1ps")
  tracker = global_step.GlobalStepTracker()
  with tf.Graph().as_default():
    local_loop.Model()
    local_loop.run([tracker, summaries.StepCounter(tracker, 4)], 10)
  assert sum("global_step/sec: " in line for line in caplog.messages) == 2


def test_summaries_do_not_make_the_ps_say_the_step_more_often_than_needed(tmp_path, set_timing):
  set_timing(global_step, global_step_interval=1e9)
  tracker = global_step.GlobalStepTracker()
  with tf.Graph().as_default():
    local_loop.Model()
    tf.summary.scalar("one", 1.0)
    scaffold = tf.train.Scaffold()
    _, questions = local_loop.run([
      tracker, summaries.SummarySaver(tracker, scaffold, str(tmp_path), save_steps=50)],
      200, scaffold)
  # At the start, for the summaries at 1, 51, 101, 151, and never 100 steps without.
  assert questions == 5


def test_a_model_without_summaries_writes_none(tmp_path):
  tracker = global_step.GlobalStepTracker()
  with tf.Graph().as_default():
    local_loop.Model()
    scaffold = tf.train.Scaffold()
    local_loop.run([
      tracker, summaries.SummarySaver(tracker, scaffold, str(tmp_path), save_steps=1)],
      3, scaffold)
  assert values(tmp_path, "before") == []


@pytest.mark.parametrize("steps, secs", [(None, None), (1, 1.0)])
def test_an_interval_that_is_none_is_refused(steps, secs):
  with pytest.raises(ValueError, match="give either save_steps or save_secs; got"):
    summaries.SummarySaver(global_step.GlobalStepTracker(), tf.train.Scaffold(), "d", steps, secs)
  with pytest.raises(ValueError, match="every_steps must be at least 1, got 0"):
    summaries.StepCounter(global_step.GlobalStepTracker(), 0)


@pytest.mark.parametrize("device, written", [
  ("/job:ps/task:0", "/job:ps/task:0/device:CPU:0"),
  ("/job:worker/task:1/device:CPU:1", "/job:worker/task:1/device:CPU:1"), ("", "")])
def test_the_graph_has_complete_devices(tmp_path, device, written):
  """TensorBoard colours no other operations."""
  if tf.config.experimental.list_physical_devices("GPU"):
    pytest.skip("needs a TensorFlow that sees no GPU")
  with tf.Graph().as_default() as graph, tf.device(device or None):
    tf.no_op("one")
    writer = tf.summary.FileWriter(str(tmp_path))
    summaries.write_graph(writer, graph)
    writer.close()
  path, = tmp_path.iterdir()
  graphs = [tf.GraphDef.FromString(event.graph_def)
            for event in tf.train.summary_iterator(str(path)) if event.graph_def]
  assert [node.device for node in graphs[-1].node if node.name == "one"] == [written]
