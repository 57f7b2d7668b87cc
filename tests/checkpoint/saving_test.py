from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import needs
from tests.checkpoint.damages import latest_intact
from tests.training import local_loop
from tf1ps import cluster
from tf1ps.checkpoint import checkpoints, global_step, saving


def train(directory, last_step, fail_at=(), saver=None, more_hooks=(), data=None,
          log_step_count_steps=None, **kwargs):
  """Trains in this process with tf1ps.MonitoredTrainingSession; returns the x at its end."""
  with tf.Graph().as_default():
    model = local_loop.Model()
    if data is not None:
      tf.constant(data, name="data")
    scaffold = tf.train.Scaffold(saver=saver() if saver else None)
    with tf1ps.MonitoredTrainingSession(
        checkpoint_dir=str(directory), scaffold=scaffold,
        log_step_count_steps=log_step_count_steps,
        hooks=[tf.train.StopAtStepHook(last_step=last_step), FailOnce(fail_at), *more_hooks],
        **kwargs) as session:
      while not session.should_stop():
        session.run(model.train_op)
        x = session.run_step_fn(lambda step_context: step_context.session.run(model.x))
  return x


class FailOnce(tf.train.SessionRunHook):
  """Loses the session after these steps of the process, once each."""

  def __init__(self, steps):
    self._left, self._step = list(steps), 0

  def after_run(self, run_context, run_values):
    self._step += 1
    if self._step in self._left:
      self._left.remove(self._step)
      raise tf.errors.AbortedError(None, None, "lost")


def steps_in(directory):
  """The global steps of the checkpoints that lie there, sorted."""
  return sorted(int(re.search(r"-(\d+)\.index", name).group(1))
                for name in os.listdir(str(directory)) if name.endswith(".index"))


def listed(directory):
  return [
    checkpoints.global_step_of_checkpoint(path)
    for path in checkpoints.listed_checkpoints(str(directory))
  ]


def test_at_the_start_every_n_steps_and_at_the_end(tmp_path):
  train(tmp_path, 25, save_checkpoint_steps=10)
  assert steps_in(tmp_path) == listed(tmp_path) == [0, 10, 20, 25]
  assert latest_intact(tmp_path) == str(tmp_path / "model.ckpt-25")
  reader = tf.train.NewCheckpointReader(str(tmp_path / "model.ckpt-10"))
  assert (reader.get_tensor("x"), reader.get_tensor("global_step")) == (10.0, 10)


@pytest.mark.parametrize("secs, steps", [(1e-9, [0, 1, 2, 3]), (3600, [0, 3])])
def test_every_n_seconds(tmp_path, secs, steps):
  train(tmp_path, 3, save_checkpoint_secs=secs)
  assert steps_in(tmp_path) == steps


class SilentSaver(tf.train.Saver):
  """A saver as many agents have it: without the meta graph, and without a result."""

  def save(self, sess, save_path, global_step=None, latest_filename=None,
           meta_graph_suffix="meta", write_meta_graph=True):
    super(SilentSaver, self).save(
      sess, save_path, global_step, latest_filename, meta_graph_suffix, False)


@pytest.mark.parametrize("max_to_keep", [5, None])
def test_by_a_saver_that_returns_nothing(tmp_path, max_to_keep):
  train(tmp_path, 2, saver=lambda: SilentSaver(max_to_keep=max_to_keep), save_checkpoint_steps=1)
  assert steps_in(tmp_path) == [0, 1, 2]


class Spoil(tf.train.SessionRunHook):
  """Makes x NaN after a step, as a gradient does that is no number."""

  def __init__(self, step):
    self._step = step

  def begin(self):
    self._spoil = tf.trainable_variables()[0].assign(float("nan")).op

  def after_run(self, run_context, run_values):
    self._step -= 1
    if self._step == 0:
      run_context.session.run(self._spoil)


def test_values_that_are_no_numbers_are_not_saved(tmp_path, caplog):
  with pytest.raises(checkpoints.CheckpointError, match=(
      "^the trained variable x has values that are no numbers at global step 35. The last good "
      "checkpoint is .*/model.ckpt-10: lower the learning rate, or look at the data$")):
    train(tmp_path, 35, more_hooks=[Spoil(12)], save_checkpoint_steps=10)
  assert listed(tmp_path) == steps_in(tmp_path) == [0, 10]
  assert ["no checkpoint at global step %d: the trained variable x has values that are no numbers"
          % step for step in (20, 30, 35)] == [
            record.getMessage() for record in caplog.records
            if (record.name, record.levelname) == ("tf1ps", "WARNING")]  # TensorFlow's come once


def test_the_last_step_is_not_saved_twice(tmp_path):
  saved = count_saves(tmp_path, 20, save_checkpoint_steps=10)
  assert saved == [0, 10, 20]


def test_a_restart_goes_on_and_does_not_save_again_what_is_there(tmp_path):
  train(tmp_path, 20, save_checkpoint_steps=10)
  assert count_saves(tmp_path, 35, save_checkpoint_steps=10) == [30, 35]
  assert listed(tmp_path) == [0, 10, 20, 30, 35]


def count_saves(directory, last_step, **kwargs):
  """Trains; returns the steps at which a saver was asked to save."""
  saved = []

  class Saver(tf.train.Saver):
    def save(self, session, prefix, global_step, **kwargs):
      saved.append(global_step)
      return super().save(session, prefix, global_step, **kwargs)

  train(directory, last_step, saver=Saver, **kwargs)
  return saved


def test_after_a_recovery_it_goes_on_from_the_last_checkpoint(tmp_path):
  # In this process the variables live in the session: what came after step 20 is lost with it.
  assert train(tmp_path, 35, fail_at=[25], save_checkpoint_steps=10) == 35
  assert listed(tmp_path) == [0, 10, 20, 30, 35]


def test_keeps_so_many_also_over_a_restart(tmp_path):
  def saver():
    return tf.train.Saver(max_to_keep=2)

  train(tmp_path, 30, saver=saver, save_checkpoint_steps=10)
  assert steps_in(tmp_path) == [20, 30]
  train(tmp_path, 40, saver=saver, save_checkpoint_steps=10)
  assert steps_in(tmp_path) == listed(tmp_path) == [30, 40]


def test_a_text_goes_with_its_checkpoint(tmp_path):
  train(tmp_path, 35, saver=lambda: tf.train.Saver(max_to_keep=2), save_checkpoint_steps=10,
        more_hooks=[Beside({".beside": "a text"})])
  assert steps_in(tmp_path) == [30, 35]
  assert sorted(name for name in os.listdir(str(tmp_path)) if name.endswith(".beside")) == [
    "model.ckpt-30.beside", "model.ckpt-35.beside"]


def test_the_graph_stands_beside_them(tmp_path):
  train(tmp_path, 3, save_checkpoint_secs=3600)
  assert "x/Assign" in (tmp_path / "graph.pbtxt").read_text()
  assert "graph_def" in {event.WhichOneof("what") for event in events(tmp_path)}
  with tf.Graph().as_default(), tf.Session() as session:
    last = str(tmp_path / "model.ckpt-3")
    tf.train.import_meta_graph(last + ".meta").restore(session, last)
    assert session.run("loss:0") == 3.0


@pytest.mark.slow
def test_large_constants_are_in_no_file(tmp_path, caplog):
  data = np.arange(2 ** 22 + 10, dtype=np.float32)
  train(tmp_path, 3, save_checkpoint_steps=1, save_summaries_steps=1, data=data,
        log_step_count_steps=100)
  assert listed(tmp_path) == [0, 1, 2, 3]
  assert max(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 20
  assert not list(tmp_path.glob("*.meta"))
  assert "x/Assign" in (tmp_path / "graph.pbtxt").read_text()
  graphs = [tf.GraphDef.FromString(event.graph_def) for event in events(tmp_path)
            if event.WhichOneof("what") == "graph_def"]
  assert ["data" in {node.name for node in graph.node} for graph in graphs] == [False, True]
  (line,) = [record.getMessage() for record in caplog.records
             if record.levelname == "WARNING" and record.name == "tf1ps"]
  assert line.startswith("16 MB of arrays are constants of the graph: checkpoints have no .meta")


def test_without_graphs(tmp_path):
  train(tmp_path, 3, save_checkpoint_secs=3600, save_graph_def=False)
  assert not [name for name in os.listdir(str(tmp_path)) if name.endswith((".meta", ".pbtxt"))]


def events(directory):
  for name in sorted(os.listdir(str(directory))):
    if ".tfevents." in name:
      yield from tf.train.summary_iterator(str(directory / name))


def test_a_directory_is_made(tmp_path):
  train(tmp_path / "a" / "b", 1)
  assert steps_in(tmp_path / "a" / "b") == [0, 1]


@pytest.mark.parametrize("where, text", [
  ("file", "checkpoint_dir .*/file "),
  ("file/below", "checkpoint_dir .*/file/below cannot be created"),
  ("/proc/tf1ps", "checkpoint_dir /proc/tf1ps cannot be created: .*No such file or directory")])
def test_a_place_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path, where, text):
  (tmp_path / "file").write_text("")
  with pytest.raises(checkpoints.CheckpointError, match=text):
    train(os.path.join(str(tmp_path), where), 3)


def test_a_directory_that_takes_no_files_is_an_error_before_the_first_step():
  steps = []
  with tf.Graph().as_default():
    model = local_loop.Model()
    with pytest.raises(checkpoints.CheckpointError, match="/sys cannot be written: "):
      with tf1ps.MonitoredTrainingSession(checkpoint_dir="/sys") as session:
        steps.append(session.run(model.loss))
  assert steps == []


class At(tf.train.SessionRunHook):
  """Calls functions after these steps of the process: {step: function}."""

  def __init__(self, calls):
    self._calls, self._step = calls, 0

  def after_run(self, run_context, run_values):
    self._step += 1
    self._calls.get(self._step, lambda: None)()


def take_away(directory):
  """A file in the place of the directory, in which nothing can be saved."""
  os.rename(str(directory), str(directory) + ".away")
  with open(str(directory), "w"):
    pass


def bring_back(directory):
  os.remove(str(directory))
  os.rename(str(directory) + ".away", str(directory))


def saves_that_fail(caplog):
  return [record.getMessage() for record in caplog.records if "Training goes on" in
          record.getMessage()]


def test_a_save_that_fails_is_a_warning_and_tried_again(tmp_path, caplog, set_timing):
  set_timing(saving, save_retry_pause=1e-9)
  directory = tmp_path / "d"
  train(directory, 40, save_checkpoint_steps=10, save_summaries_steps=None, more_hooks=[At({
    15: lambda: take_away(directory), 25: lambda: bring_back(directory)})])
  assert listed(directory) == steps_in(directory) == [0, 10, 26, 36, 40]
  texts = saves_that_fail(caplog)
  assert len(texts) == 6 and re.match(
    "the checkpoint .*/d/model.ckpt-20 cannot be saved: .* Training goes on, and ends with an "
    "error after 600 s without a checkpoint; the next try is in 0 s", texts[0]), texts


def test_a_directory_that_vanishes_is_made_again(tmp_path, caplog):
  directory = tmp_path / "d"
  train(directory, 20, save_checkpoint_steps=10, save_summaries_steps=None,
        more_hooks=[At({5: lambda: shutil.rmtree(str(directory))})])
  assert listed(directory) == [10, 20]
  assert "has vanished with its checkpoints: it is made again" in caplog.text


def test_saves_that_fail_for_too_long_end_training(tmp_path, set_timing):
  set_timing(saving, save_retry_pause=1e-9, failed_saves_limit=1e-6)
  directory = tmp_path / "d"
  with pytest.raises(checkpoints.CheckpointError, match=(
      "no checkpoint could be saved for 0 s: the checkpoint .*ckpt-11 cannot be saved: ")):
    train(directory, 40, save_checkpoint_steps=10, save_summaries_steps=None,
          more_hooks=[At({5: lambda: take_away(directory)})])


def test_a_last_save_that_fails_is_an_error(tmp_path):
  directory = tmp_path / "d"
  with pytest.raises(checkpoints.CheckpointError, match="the checkpoint .*ckpt-15 cannot be saved"):
    train(directory, 15, save_checkpoint_steps=10, save_summaries_steps=None,
          more_hooks=[At({13: lambda: take_away(directory)})])


@pytest.fixture
def small_disk(tmp_path):
  """A directory with room for 1 MB."""
  place = tmp_path / "disk"
  place.mkdir()
  if os.geteuid() or subprocess.call(
      ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], stderr=subprocess.DEVNULL):
    needs.skip("mounts")
  yield place
  subprocess.check_call(["umount", "-l", str(place)])


def fill(disk):
  with contextlib.suppress(OSError), open(str(disk / "filler"), "wb", 0) as file:
    while True:
      file.write(b"0" * 4096)


class Beside(cluster.LifecycleHook):
  """Keeps a text beside each checkpoint, or none."""

  def __init__(self, texts):
    self._texts = texts

  def texts_beside_checkpoint(self):
    return self._texts


@pytest.mark.parametrize("texts", [{}, {"-beside": "a text"}], ids=["alone", "beside"])
def test_a_full_disk_is_an_error_at_the_start_and_a_warning_later(
    small_disk, caplog, set_timing, texts):
  set_timing(saving, save_retry_pause=1e-9)
  fill(small_disk)
  with pytest.raises(checkpoints.CheckpointError, match="(?i)disk.*no space left|resource"):
    train(small_disk / "d", 5)
  (small_disk / "filler").unlink()
  train(small_disk / "d", 40, save_checkpoint_steps=10, save_summaries_steps=None, more_hooks=[
    Beside(texts), At({15: lambda: fill(small_disk), 25: (small_disk / "filler").unlink})])
  assert listed(small_disk / "d") == [0, 10, 26, 36, 40]
  assert latest_intact(small_disk / "d").endswith("model.ckpt-40")
  assert len(saves_that_fail(caplog)) == 6
  assert not [name for name in os.listdir(str(small_disk / "d")) if "temp" in name or "tmp" in name]


@pytest.mark.parametrize("name", ["a[1]", "a?", "*", "a\\b"])
def test_a_directory_that_tensorflow_takes_for_a_pattern_is_refused(name):
  with pytest.raises(ValueError, match="checkpoint_dir must not contain .* for a pattern"):
    saving.CheckpointSaver(global_step.GlobalStepTracker(), name, tf.train.Scaffold(), 1.0)


@pytest.mark.parametrize("secs, steps", [(None, None), (1.0, 1), (-1.0, None), (None, 0)])
def test_an_interval_that_is_none_is_refused(secs, steps):
  with pytest.raises(ValueError, match="save_secs and save_steps|positive interval"):
    saving.CheckpointSaver(global_step.GlobalStepTracker(), "d", tf.train.Scaffold(), secs, steps)
