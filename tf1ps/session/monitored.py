"""The session that a training loop of ours runs in, from its creation to its close.

What hooks may do beside what a `SessionRunHook` can, by methods that they have:

  join(life)           called when the session is made, with its `life.SessionLife`
  goes_on(session, e)  at the end of the data: whether it has brought more, so that the run is made
                       again
  leave(session, done) at a clean end, before the session is closed; done: no signal has ended it
  end_all(session)     likewise, on the chief, when all other workers have ended
"""

from __future__ import annotations

import logging

import tensorflow.compat.v1 as tf

from tf1ps.session import initialise
from tf1ps.session import life as life_lib

_log = logging.getLogger("tf1ps")
_CLEAN_ENDS = (tf.errors.OutOfRangeError, StopIteration)


class MonitoredSession(tf.train.MonitoredSession):
  """A `tf.train.MonitoredSession` with a bounded, honest end; `life` is its `life.SessionLife`."""

  def __init__(self, life: life_lib.SessionLife, hooks, stop_grace_period_secs: float):
    """Creates the session; use `monitored_session.MonitoredTrainingSession`."""
    self.life = life
    self._left = False
    self._hooks_at_end = [hook for hook in hooks if hasattr(hook, "leave")]
    self._hooks_at_end_of_data = [hook for hook in hooks if hasattr(hook, "goes_on")]
    for hook in hooks:
      if hasattr(hook, "join"):
        hook.join(life)
    life.enter()
    if life.part is not None:
      life.part.start()
    try:
      super().__init__(life.creator, hooks, stop_grace_period_secs)
    except BaseException as error:
      if life.creator.session is not None:
        life.creator.session.close()
      life.after_close(error)
      raise

  def __exit__(self, exception_type, exception_value, traceback):
    if isinstance(exception_value, _CLEAN_ENDS) and self.life.creator.is_creating:
      raised = initialise.SessionCreationError("creating the session: %s" % exception_value)
      self._leave(raised, lambda: super(MonitoredSession, self).__exit__(
        type(raised), raised, traceback))
      raise raised from exception_value
    clean = exception_type is None or issubclass(exception_type, _CLEAN_ENDS)
    return self._leave(None if clean else exception_value, lambda: super(
      MonitoredSession, self).__exit__(exception_type, exception_value, traceback))

  def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
    """Like `tf.train.MonitoredSession.run`; at the end of the data hooks may have it go on."""
    while True:
      try:
        return super().run(fetches, feed_dict, options, run_metadata)
      except tf.errors.OutOfRangeError as error:
        if not any(hook.goes_on(self, error) for hook in self._hooks_at_end_of_data):
          raise

  def close(self):
    """Closes the session; the chief waits for the others, saves, and releases the ps."""
    self._leave(None, super().close)

  def _leave(self, error, close):
    if self._left:
      return None
    self._left = True
    try:
      if error is None:
        self._tell("leave", self.life.signum is None)
        self.life.before_close(self.call_inside)
        if self.life.is_chief and self.life.signum is None:
          self._tell("end_all")
      self.life.hold_close()
      result = close()
    except BaseException as problem:
      self.life.after_close(problem)
      raise
    self.life.after_close(error)
    return result

  def call_inside(self, function):
    """Calls function(session inside); after a recovery the new one, not run_step_fn's old one."""
    return self.run_step_fn(lambda step_context: function(self.life.creator.session))

  def _tell(self, method, *args):
    """Calls a method of those hooks that have it."""
    hooks = [hook for hook in self._hooks_at_end if hasattr(hook, method)]
    if hooks and self.life.creator.session is not None:
      try:
        self.call_inside(lambda session: [getattr(hook, method)(session, *args) for hook in hooks])
      except (tf.errors.OpError, RuntimeError) as error:
        _log.warning("at the end of training: %s", error)
