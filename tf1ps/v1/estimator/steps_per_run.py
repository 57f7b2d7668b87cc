"""Makes several steps in one run of an estimator's loop, if that saves time.

`Estimator.train` runs `[spec.train_op, spec.loss]` in a loop. In a job, `hand_over` replaces the
train_op by an empty operation, and `StepsOfRun`, a hook of the session, fetches the step: one step,
or the number of steps that `transfer.RunLength` finds. That number stays 1 if

- a hook of the program takes part in the runs, because it may count them;
- `steps_per_execution` says so, or the step cannot be copied.

The number of steps of the whole job, of the logging hooks and of the checkpoints does not change:
near the last step each run makes one step.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps import cluster as cluster_lib
from tf1ps import compat, training

_STEP = "tf1ps.v1.estimator.step"  # the collection with the train_op and the loss
# TensorFlow's hooks that know steps by the global step, or whose count `StepsOfRun` corrects.
_KNOWN = (tf.train.CheckpointSaverHook, tf.train.LoggingTensorHook, tf.train.NanTensorHook,
          tf.train.StepCounterHook, tf.train.StopAtStepHook, tf.train.SummarySaverHook)


def hand_over(spec):
  """Returns a training EstimatorSpec with an empty train_op, because the session makes the step."""
  tf.get_collection_ref(_STEP)[:] = [spec.train_op, spec.loss]
  return spec._replace(train_op=tf.no_op("train_op_by_session"))


def take_over(hooks: Sequence[tf.train.SessionRunHook],
              others: Sequence[tf.train.SessionRunHook], cluster: cluster_lib.Cluster,
              steps_per_execution: str) -> List[tf.train.SessionRunHook]:
  """Returns the hooks of a session, and the hooks that make the step that was handed over.

  Args:
    hooks: the hooks of the session.
    others: hooks of the session that stay unchanged.
    cluster: the job's cluster.
    steps_per_execution: "auto" or "1".
  """
  step = tf.get_collection(_STEP)
  if not step:
    return list(hooks)
  may_grow = steps_per_execution != "1" and all(
    type(hook) in _KNOWN or _takes_no_part(hook) for hook in [*hooks, *others])
  makes = StepsOfRun(*step, hooks, cluster.num_replicas, may_grow)
  if not may_grow:
    return [makes, *hooks]
  return [makes, *(_StopAtStep(hook, makes) if type(hook) is tf.train.StopAtStepHook else hook
                   for hook in hooks)]


def _takes_no_part(hook) -> bool:
  """Whether a hook does nothing before and after a run, such as a hook that initialises input."""
  kind = type(hook)
  return (kind.before_run is tf.train.SessionRunHook.before_run
          and kind.after_run is tf.train.SessionRunHook.after_run)


class StepsOfRun(cluster_lib.LifecycleHook):
  """Makes the steps of each run; it is the first of the estimator's hooks.

  Attributes:
    counts: the ledger, with the tracker of the global step, from `on_join` on.
    num_replicas: the number of workers.
    stop: the stop at the last step; None: the job has no such stop, or it is not known yet.
  """

  def __init__(self, train_op, loss: tf.Tensor, hooks: Sequence[tf.train.SessionRunHook],
               num_replicas: int, may_grow: bool):
    """Creates the hook.

    Args:
      train_op: the operation or tensor of one step.
      loss: the loss of this step, [].
      hooks: the other hooks, including the hooks that count runs.
      num_replicas: the number of workers.
      may_grow: whether a run may have several steps.
    """
    self._fetches = training.Fetches(training.Step(train_op, loss, examples=None), may_grow=True)
    self._logs = [hook for hook in hooks if type(hook) is tf.train.LoggingTensorHook]
    self._execution: Optional[training.Execution] = None
    self._auto = None
    if may_grow:
      self._auto = training.AutoSteps(self._fetches, self._steps_left)
    self.counts: Optional[training.Counts] = None
    self.num_replicas = num_replicas
    self.stop: Optional[training.StopAtStep] = None

  def _steps_left(self):
    return None if self.stop is None else self.stop.steps_left

  # The methods that `training.Execution` needs of its argument `stops`.

  def is_near(self, begun: float) -> bool:
    """Whether the last step may be reached soon."""
    return self.stop is not None and self.stop.is_near(begun)

  def may_make(self, steps: int, begun: float, faster: float = training.FASTER) -> bool:
    """Whether a run of `steps` steps does not pass the last step."""
    return self.stop is None or self.stop.may_make(steps, begun, faster)

  # The hook.

  def on_join(self, lifecycle):
    self.counts = training.Counts(lifecycle.tracker, self._fetches)
    self._execution = training.Execution(self.counts, self)

  def after_create_session(self, session, coord):
    self._execution.after_create_session(session, coord)
    if self._auto is not None:
      self._auto.after_create_session(session, coord)

  def before_run(self, run_context):
    return self._execution.before_run(run_context)

  def after_run(self, run_context, run_values):
    more = self._fetches.steps - 1  # the tracker and TensorFlow's hooks count the first step
    self.counts.tracker.add_steps(more)
    for hook in self._logs:
      compat.add_iterations(hook, more)
    self._execution.after_run(run_context, run_values)
    if self._auto is not None:
      self._auto.after_run(run_context, run_values)

  def on_end_of_data(self, session, error):
    self._execution.on_end_of_data(session, error)


class _StopAtStep(tf.train.StopAtStepHook):
  """Stops at the same step as TensorFlow's hook, and does not ask the ps in every run."""

  def __init__(self, hook: tf.train.StopAtStepHook, makes: StepsOfRun):
    """Replaces `hook`; the hook `makes` must come before this hook."""
    num_steps, last_step = compat.stop_arguments(hook)
    super().__init__(None if last_step is not None else num_steps, last_step)
    self._makes, self._of_session, self._last = makes, num_steps, last_step

  def begin(self):
    pass

  def after_create_session(self, session, coord):
    makes = self._makes
    if makes.stop is None:
      last = self._last
      if last is None:
        last = makes.counts.tracker.value + self._of_session
      makes.stop = training.StopAtStep(makes.counts, last, makes.num_replicas)
    makes.stop.after_create_session(session, coord)

  def before_run(self, run_context):
    return None

  def after_run(self, run_context, run_values):
    self._makes.stop.after_run(run_context, run_values)
