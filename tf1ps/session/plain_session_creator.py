"""Creates a training session without knowledge of the cluster.

Without a cluster (`master=""`), or with the target of a server that is not a `tf1ps.Server`, tf1ps
cannot probe tasks and cannot distinguish runs. It still does the following:

1. `start_timeout` bounds the first contact.
2. The chief checks the checkpoint directory, then restores or initialises like TensorFlow.
3. The other workers check four times per second whether the model is ready. TensorFlow sleeps 30 s
   between two checks.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, call_within
from tf1ps.compat import RETRIES, TIMING
from tf1ps.pipeline import explain_input_error
from tf1ps.replication import explain_round_error
from tf1ps.session import initialise, limits

_log = logging.getLogger("tf1ps")


class PlainSessionCreator(tf.train.SessionCreator):
  """Creates sessions on a target of an unknown cluster."""

  def __init__(self, master: str, scaffold: tf.train.Scaffold, is_chief: bool,
               config: Optional[tf.ConfigProto] = None, checkpoint_dir: Optional[str] = None,
               start_timeout: float = limits.START_TIMEOUT, heartbeat_timeout: float = 30.0,
               max_wait_secs: float = 7200.0, interrupted: Callable[[], None] = lambda: None):
    """Creates the creator; the arguments are those of `session_creator.RunSessionCreator`."""
    self._master, self._scaffold, self._is_chief = master, scaffold, is_chief
    self.config = config
    self._checkpoint_dir, self._start_timeout = checkpoint_dir, start_timeout
    self._heartbeat_timeout, self._max_wait_secs = heartbeat_timeout, max_wait_secs
    self._interrupted = interrupted
    self._graph = None
    self.session = None
    self.sessions = 0
    self.is_creating = False

  def end_creation(self) -> None:
    """Notes that every hook has taken over the session."""
    self.is_creating = False

  def create_session(self):
    """Creates a session; raises SessionCreationError, or the error that TensorFlow raises."""
    if self._graph is None:
      initialise.finalize(self._scaffold)
      self._graph = tf.get_default_graph()
    self.is_creating = True
    if self.session is not None:
      self.session.close()  # A hook that fails in after_create_session leaves its session open.
    limit = self._heartbeat_timeout if self.sessions else self._start_timeout
    pauses, deadline = RETRIES.plain_session.pauses(), time.monotonic() + limit
    while True:
      self._interrupted()
      try:
        session = self._create(limit)
        self.sessions += 1
        return session
      except RETRIES.plain_session.errors as error:
        pause = next(pauses)
        if time.monotonic() + pause > deadline:
          raise initialise.SessionCreationError(
            "no session on %r within %.0f s: %s" % (self._master, limit, error)) from error
        time.sleep(pause)
      except tf.errors.OutOfRangeError as error:
        raise initialise.SessionCreationError("creating the session: %s" % error) from error

  def _create(self, limit):
    self.session = session = BoundedSession(
      self._master, self._graph, self.config,
      explain=lambda error: explain_round_error(explain_input_error(error, self._graph)))
    try:
      missing = call_within(
        limit, "connecting to %r" % self._master,
        initialise.missing_variables, session, self._scaffold.ready_for_local_init_op)
      if not self._is_chief:
        self._await_chief(session)
      elif missing or self.sessions == 0 or initialise.has_partial_update(session):
        initialise.restore_or_initialise(session, self._scaffold, self._checkpoint_dir)
      initialise.initialise_locally(session, self._scaffold)
      return session
    except BaseException:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
      session.close()
      self.session = None
      raise

  def _await_chief(self, session):
    began, said = time.monotonic(), 0.0
    while True:
      missing = initialise.missing_variables(session, self._scaffold.ready_for_local_init_op)
      if not missing:
        return
      now = time.monotonic()
      if now - began > self._max_wait_secs:
        raise initialise.SessionCreationError(
          "the chief has not initialised %d variables, such as %s, within %.0f s (max_wait_secs)"
          % (len(missing), ", ".join(missing[:5]), self._max_wait_secs))
      if now - began > TIMING.first_report and now - said > TIMING.reminder_interval:
        said = now
        _log.warning("waiting for the chief to initialise %d variables, such as %s",
                     len(missing), missing[0])
      self._interrupted()
      time.sleep(TIMING.poll_interval)
