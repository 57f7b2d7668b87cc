"""The base classes of hooks and of sessions that survive the recoveries of a job."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import tensorflow.compat.v1 as tf


class RecoverableSession:
  """A session of a job: after a failure a new session inside it replaces the old session."""

  def call_inside(self, function: Callable) -> Any:
    """Calls function(session) with the session inside; returns the result."""
    raise NotImplementedError


class LifecycleHook(tf.train.SessionRunHook):
  """A `tf.train.SessionRunHook` with methods for the events before, between and after the steps.

  A training session of tf1ps calls the methods in this order. Methods in brackets are TensorFlow's.

    on_join                 once, before the first session is created
    (begin)
    on_state_begun          the chief, in a session that restored or initialised the job's variables
    on_session_opened       in each session, before its local variables are initialised
    (after_create_session)
    (before_run, after_run)
    before_save, texts_beside_checkpoint    the chief, at each checkpoint
    on_end_of_data          a step has raised OutOfRangeError: called for every hook
    begin_next_pass         then hook by hook, until a hook returns True
    finish_steps            the loop has ended without an error
    leave                   then, before this task reports its end
    end_all                 then on the chief, once all other workers have left
    (end)

  A hook overrides the methods that it needs. The methods of this base class do nothing.
  """

  def on_join(self, lifecycle: Any) -> None:
    """Called with the `session.SessionLifecycle` that this hook takes part in."""

  def on_state_begun(self, session: tf.Session, checkpoint: Optional[str]) -> None:
    """Called with the restored checkpoint's prefix, or None after an initialisation."""

  def on_session_opened(self, session: tf.Session) -> None:
    """Called when the job's variables have their values."""

  def before_save(self, session: tf.Session) -> None:
    """Called before the training loop saves a checkpoint."""

  def texts_beside_checkpoint(self) -> Dict[str, str]:
    """Returns texts to keep in files beside a checkpoint, by the files' suffix."""
    return {}

  def on_end_of_data(self, session: tf.train.MonitoredSession,
                     error: tf.errors.OutOfRangeError) -> None:
    """Called with the `session.MonitoredSession` and the error of the step."""

  def begin_next_pass(self, session: tf.train.MonitoredSession,
                      error: tf.errors.OutOfRangeError) -> bool:
    """Returns whether there is more data, so that the session repeats the step."""
    return False

  def finish_steps(self, session: tf.train.MonitoredSession) -> None:
    """Ends steps that run beside the loop. Its errors end training as a step's error does."""

  def leave(self, session: tf.Session, finished: bool = True) -> None:
    """Ends this task's membership in a group of replicas.

    Args:
      session: the session.
      finished: whether the task did its part; False after a signal.
    """

  def end_all(self, session: tf.Session) -> None:
    """Ends the group."""
