from __future__ import annotations

import glob
import logging
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import line_program, local_job
from tf1ps.program import Evaluation
from tf1ps.training import step_evaluation, worker


class Evaluate(object):
  """Evaluates when it may, and notes the steps."""

  def __init__(self, error=None):
    self.begun, self.may, self.given_up = [], threading.Event(), []
    self._error = error

  def __call__(self, path, gives_up):
    step = int(path.rpartition("-")[2])
    self.begun.append(step)
    harness.wait_until(lambda: self.may.is_set() or gives_up())
    if gives_up():
      self.given_up.append(step)
      return None
    if self._error is not None:
      raise self._error
    return Evaluation({"loss": 0.5}, 10, step, 0.1)


class Saved(object):
  """A listener, and the checkpoints that it hears of."""

  def __init__(self, tmp_path, evaluate):
    self.summaries = []
    self.listener = step_evaluation.StepEvaluation(evaluate, str(tmp_path), self.summaries.append)
    self._folder = tmp_path

  def save(self, step):
    path = line_program.save(self._folder, step, w=1.0, b=1.0)
    self.listener.after_save(None, step)
    return path


def test_the_newest_waits_while_one_is_evaluated(tmp_path):
  evaluate = Evaluate()
  saved = Saved(tmp_path, evaluate)
  saved.save(0)  # before the first step
  saved.save(1)
  harness.wait_until(lambda: evaluate.begun == [1])
  saved.save(2)
  last = saved.save(3)
  evaluate.may.set()
  harness.wait_until(lambda: len(saved.summaries) == 2)
  assert saved.listener.result_of(last).global_step == 3
  assert evaluate.begun == [1, 3] and [one.global_step for one in saved.summaries] == [1, 3]
  harness.wait_until(lambda: not saved.listener._thread.is_alive())


def test_the_end_waits_for_no_older_one(tmp_path):
  evaluate = Evaluate()
  saved = Saved(tmp_path, evaluate)
  saved.save(0)
  saved.save(1)
  harness.wait_until(lambda: evaluate.begun == [1])
  assert saved.listener.result_of(line_program.save(tmp_path, 2, w=1.0, b=1.0)) is None
  harness.wait_until(lambda: evaluate.given_up == [1])


def test_an_error_of_the_job_ends_the_evaluation(tmp_path):
  evaluate = Evaluate()
  saved = Saved(tmp_path, evaluate)
  saved.save(0)
  with pytest.raises(ValueError), saved.listener:
    saved.save(1)
    harness.wait_until(lambda: evaluate.begun == [1])
    raise ValueError
  harness.wait_until(lambda: not saved.listener._thread.is_alive())
  assert not saved.summaries


def test_an_evaluation_that_fails_is_a_warning(tmp_path, caplog, monkeypatch):
  monkeypatch.setattr(logging.getLogger("tf1ps"), "propagate", True)
  evaluate = Evaluate(RuntimeError("no data"))
  evaluate.may.set()
  saved = Saved(tmp_path, evaluate)
  saved.save(0)
  path = saved.save(1)
  assert saved.listener.result_of(path) is None and not saved.summaries
  assert caplog.messages == ["%s was not evaluated, and training goes on: no data" % path]


class AwaitEvaluation(tf.train.SessionRunHook):
  """Has a step wait until the thread has evaluated the checkpoint of the step before."""

  def __init__(self, evaluated):
    self._evaluated, self._steps = evaluated, 0

  def after_run(self, run_context, run_values):
    self._steps += 1
    if self._steps % 10 == 1 and self._steps > 1:
      harness.wait_until(lambda: self._evaluated[-1:] == [self._steps - 1])


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(moving_average_decay=0.9), dict(sync_replicas=True)])
@pytest.mark.parametrize("has_directory", [True, False])
def test_a_job(tmp_path, monkeypatch, has_directory, options):
  evaluated, values, evaluate = [], {}, worker.evaluate

  def note(*args, **kwargs):
    found = evaluate(*args, **kwargs)
    values[found.global_step] = found.metrics["loss"]
    evaluated.append(found.global_step)
    return found

  def model_fn(features, labels, mode):
    return local_job.line_model(features, labels, mode)._replace(
      hooks=[AwaitEvaluation(evaluated)] if mode == "train" else [])

  monkeypatch.setattr(worker, "evaluate", note)
  outcome = local_job.train(
    model_fn=model_fn, steps=30, eval_steps=10, learning_rate=0.1,
    checkpoint_dir=str(tmp_path) if has_directory else None, **options)
  assert evaluated == [10, 20, 30]  # each once
  assert values[10] > values[30] == outcome.evaluation.metrics["loss"]
  found = {}
  for path in glob.glob(str(tmp_path / "eval" / "events*")):
    for event in tf.train.summary_iterator(path):
      for value in event.summary.value:
        found[event.step] = value.simple_value
  assert found == (pytest.approx(values) if has_directory else {})
