"""Whoever restores passes over a damaged checkpoint: training, evaluation, prediction, export."""
from __future__ import annotations

import os
import re

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.checkpoint.damages import DAMAGES, PART, cut
from tests.training import line_program, local_job
from tf1ps.checkpoint import checkpoints
from tf1ps.program import evaluator, prediction, saved_model
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)


def begin(directory, **arguments):
  """The global step at which a MonitoredTrainingSession begins."""
  with model() as step, tf1ps.MonitoredTrainingSession(
      checkpoint_dir=directory, log_step_count_steps=None, **arguments) as session:
    return int(session.run(step))


def begin_supervised(directory):
  """The global step at which a Supervisor's session begins."""
  with model() as step:
    supervisor = tf1ps.Supervisor(logdir=directory)
    with supervisor.managed_session() as session:
      return int(session.run(step))


class model(object):  # noqa: N801
  """A graph with the variables of line_program; yields the global step."""

  def __enter__(self):
    self._graph = tf.Graph().as_default()
    self._graph.__enter__()
    for name in ("w", "b"):
      tf.get_variable(name, [], initializer=tf.zeros_initializer())
    return tf.train.get_or_create_global_step()

  def __exit__(self, *error):
    self._graph.__exit__(*error)


def evaluate(directory):
  outcome = evaluator.follow_checkpoints(LINE, directory, 60, 60, 4, checkpoint="latest")
  return outcome.last.global_step


def predict(directory):
  output = os.path.join(directory, "y.csv")
  return step_of(prediction.predict_examples(LINE, directory, output, batch_size=4))


def export_model(directory):
  return step_of(saved_model.export_saved_model(
    LINE, directory, os.path.join(directory, "exported")))


def step_of(result):
  return int(re.search(r"-(\d+)$", result.checkpoint).group(1))


USERS = [begin, begin_supervised, evaluate, predict, export_model]


def save(directory, steps=(1, 2, 3)):
  return [line_program.save(directory, step, w=2.0, b=1.0) for step in steps][-1]


def damages_of_all():
  """Each damage for each user; those of the first user are fast, and those of the first damage."""
  for use in USERS:
    for damage in DAMAGES:
      is_fast = use is USERS[0] or damage is DAMAGES[0]
      yield pytest.param(*damage, use, marks=[] if is_fast else [pytest.mark.slow])


@pytest.mark.parametrize("ending, change, expected, use", list(damages_of_all()))
def test_a_damaged_checkpoint_is_named_and_passed_over(
    tmp_path, caplog, ending, change, expected, use):
  change(save(tmp_path) + ending)
  assert use(str(tmp_path)) == 2
  texts = [record.getMessage() for record in caplog.records if record.name == "tf1ps"]
  assert len([text for text in texts if re.search(expected, text)]) == 1, texts


@pytest.mark.parametrize("use", USERS)
def test_in_place_of_an_empty_state_file_the_newest_is_used(tmp_path, use):
  save(tmp_path)
  (tmp_path / "checkpoint").write_text("")
  assert use(str(tmp_path)) == 3


@pytest.mark.parametrize("use", USERS)
def test_without_a_good_checkpoint_nothing_starts_at_step_0(tmp_path, use):
  save(tmp_path)
  for step in (1, 2, 3):
    cut(3)(str(tmp_path / ("model.ckpt-%d" % step)) + PART)
  with pytest.raises(checkpoints.CheckpointError, match=(
      "no checkpoint in .* can be used: .*ckpt-3 is damaged in .*ckpt-1 is damaged in .* To start "
      "from step 0, use another directory")):
    use(str(tmp_path))


def test_training_goes_on_from_the_good_one_and_drops_the_damaged_one(tmp_path):
  cut(3)(save(tmp_path) + PART)
  good = tmp_path / ("model.ckpt-2" + PART)
  saved_at = good.stat().st_mtime_ns
  with model() as step:
    later = step.assign(7)
    with tf1ps.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), log_step_count_steps=None) as session:
      # It is not saved again: a kill at that moment could damage the only good one.
      assert good.stat().st_mtime_ns == saved_at
      session.run(later)
  assert [int(path.rpartition("-")[2])
          for path in checkpoints.listed_checkpoints(str(tmp_path))] == [1, 2, 7]


@pytest.mark.slow
def test_a_job_of_several_epochs_counts_those_of_the_good_one(tmp_path):
  def train(epochs):
    return local_job.train(checkpoint_dir=str(tmp_path), epochs=epochs, batch_size=40,
                           save_checkpoints="steps:4")

  assert train(1).global_step == 10
  assert (tmp_path / "model.ckpt-10.epochs.json").exists()
  cut(3)(str(tmp_path / "model.ckpt-10") + PART)
  outcome = train(1)
  assert outcome.global_step == 10 and outcome.steps in (2, 10), outcome
  assert "nothing was left" not in outcome.reason
