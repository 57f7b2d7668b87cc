"""`tf.estimator.train_and_evaluate`, whose evaluator ends with the run.

TensorFlow's evaluator ends only at `max_steps`, and sleeps for `throttle_secs` (600 by default)
before it checks. tf1ps follows the run's status file in the model directory, as tf1ps' own
evaluator does. A task that is started again after the run has ended has nothing left to do.
"""

from __future__ import annotations

import time

import tensorflow.compat.v1 as tf

from tf1ps import checkpoint, compat, program, session, state
from tf1ps.v1.estimator import estimator_options as options_lib
from tf1ps.v1.estimator import updates

_START_TIMEOUT = 600.0  # seconds for the run to appear: people start tasks by hand


def train_and_evaluate(estimator, train_spec, eval_spec):
  """Trains and evaluates like TensorFlow's function; with TF_CONFIG, as a task of a cluster.

  Args:
    estimator: a `tf.estimator.Estimator`.
    train_spec: a `tf.estimator.TrainSpec`.
    eval_spec: a `tf.estimator.EvalSpec`.

  Returns:
    Without a cluster: the metrics of the last evaluation, and the results of the exporters.

  Raises:
    TypeError: an argument is of another class.
    JobFailedError: in an evaluator, the run has failed or is lost.
  """
  config = getattr(estimator, "config", None)
  if config is None:
    return compat.train_and_evaluate(estimator, train_spec, eval_spec)  # this refuses the class
  if config.task_type == "evaluator" and config.task_id == 0:
    _follow(estimator, train_spec, eval_spec)
    return None
  if config.cluster_spec and _run_has_ended(estimator, train_spec):
    tf.logging.info("The run in %s has ended at step %d: nothing is left to do.",
                    estimator.model_dir, train_spec.max_steps)
    return None
  with updates.only_training():
    return compat.train_and_evaluate(estimator, train_spec, eval_spec)


def _run_has_ended(estimator, train_spec) -> bool:
  return state.RunFile(estimator.model_dir).has_ended(last_step=train_spec.max_steps)


def _follow(estimator, train_spec, eval_spec) -> None:
  """Evaluates new checkpoints until the run has ended, and then the last checkpoint."""
  options = options_lib.current_options()
  # A chief that was killed may come back. Meanwhile the other workers continue training.
  silence = max(options.heartbeat_timeout, options.end_timeout)
  watch = program.RunWatch(estimator.model_dir, silence, _START_TIMEOUT)
  evaluations = compat.Evaluations(estimator, train_spec, eval_spec)
  end = _wait(watch, eval_spec.start_delay_secs)
  # A checkpoint of `max_steps` alone is not the end, because the other workers' last steps come
  # after it.
  while end is None and not _run_has_ended(estimator, train_spec):
    began = time.monotonic()
    _evaluate_newest(estimator, evaluations)
    end = _wait(watch, eval_spec.throttle_secs - (time.monotonic() - began))
  if end is not None:
    reason, code = end
    if code:
      raise session.JobFailedError([reason])
    tf.logging.info("%s.", reason)
  if eval_spec.exporters:  # exporters treat the last checkpoint differently
    evaluations = compat.Evaluations(estimator, train_spec, eval_spec, is_last=True)
  _evaluate_newest(estimator, evaluations)


def _wait(watch, seconds):
  """Waits for some seconds; returns the end of the run as soon as it is known, else None."""
  until = time.monotonic() + max(seconds, compat.TIMING.poll_interval)
  while True:
    end = watch.look()
    left = until - time.monotonic()
    if end is not None or left <= 0:
      return end
    time.sleep(min(left, compat.TIMING.poll_interval))


def _evaluate_newest(estimator, evaluations) -> None:
  """Evaluates the newest checkpoint, or the checkpoint before if the newest is damaged."""
  def evaluate(path):
    try:
      evaluations.evaluate(path)
    except (tf.errors.OpError, ValueError):  # which error depends on how much was deleted
      if path in checkpoint.listed_checkpoints(estimator.model_dir):
        checkpoint.verify_checkpoint(path)
        raise
      tf.logging.info("%s was deleted while it was evaluated: skipped.", path)

  if estimator.latest_checkpoint() is None:
    evaluations.evaluate(None)
  else:
    checkpoint.use_latest(estimator.model_dir, evaluate)
