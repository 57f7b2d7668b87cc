"""The one table of retries: which errors are retried, how often, and with which pause.

Each row of `RETRIES` is used where its retry is made, and docs/run.md has the same table
(`format_retries`). An error that no row names ends its task. Three sets of errors are used
elsewhere, too, to tell the loss of a task from a mistake of a program:

  NEW_SESSION_ERRORS   a new session may succeed; TensorFlow's MonitoredSession recovers from these
  CONNECTION_ERRORS    a task, the connection to it, or the run that used it is gone
  LOST_STATE_ERRORS    a variable, queue or iterator was never there, or was cleared under the run
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat.timing import TIMING, Timing

NEW_SESSION_ERRORS = (tf.errors.AbortedError, tf.errors.UnavailableError)
CONNECTION_ERRORS = NEW_SESSION_ERRORS + (tf.errors.CancelledError, tf.errors.DeadlineExceededError)

# Internal: TensorFlow's "Invalid variable reference", for a variable that goes during the run.
LOST_STATE_ERRORS = (
  tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.InternalError)


class Retry(NamedTuple):
  """A row of the table."""

  what: str  # what is made again
  errors: Tuple[type, ...]  # the errors after which it is made again, if they are TensorFlow's
  condition: str = ""  # on them, or further errors, in words
  tries: Optional[int] = None  # the number of tries
  limit: str = ""  # how long it is tried, in words; beside `tries`, the longer of both counts
  pause: Optional[str] = None  # the field of `Timing` with the first pause; None: no pause
  longest: Optional[str] = None  # the field with the longest pause, if the pause doubles

  def pauses(self) -> Iterator[float]:
    """Yields the pauses before the second try and later tries, in seconds, without an end."""
    pause = 0.0 if self.pause is None else getattr(TIMING, self.pause)
    while True:
      yield pause
      if self.longest is not None:
        pause = min(2 * pause, getattr(TIMING, self.longest))


class Retries(NamedTuple):
  """The table: a row for each kind of retry."""

  run: Retry
  step: Retry
  session: Retry
  plain_session: Retry
  thread: Retry
  path: Retry
  scheduled_step: Retry
  report: Retry
  release: Retry


RETRIES = Retries(
  run=Retry(
    "a run that a server refuses by mistake", (tf.errors.AbortedError, tf.errors.CancelledError),
    'whose text has "request was received twice"', tries=4),
  step=Retry(
    "a step, or another run of a training session, in a new session", NEW_SESSION_ERRORS,
    "; and the errors of an interrupted synchronous update, of a replica that has not joined, of a "
    "container that was reset, and of a run that a task has dropped",
    limit="until a new session is there"),
  session=Retry(
    "the creation of a training session", NEW_SESSION_ERRORS,
    "; and a ps that does not answer for the control records",
    limit="for `--start_timeout` the first time, for `--heartbeat_timeout` later",
    pause="retry_pause", longest="longest_retry_pause"),
  plain_session=Retry(
    "the creation of a session on a server that is not tf1ps's", NEW_SESSION_ERRORS,
    limit="for `start_timeout` the first time, for 30 s later",
    pause="retry_pause", longest="longest_retry_pause"),
  thread=Retry(
    "a run of another thread of a Supervisor's program", NEW_SESSION_ERRORS,
    limit="for `start_timeout`", pause="retry_pause"),
  path=Retry(
    "the check of the path to a ps and back", (tf.errors.OpError,),
    "except InvalidArgumentError and a task that is unknown there", limit="for `--start_timeout`",
    pause="retry_pause"),
  scheduled_step=Retry(
    "a step of a ClusterCoordinator, on any free worker", CONNECTION_ERRORS,
    "; and FailedPreconditionError, NotFoundError and InternalError, if a ps has lost its state",
    tries=5,
    pause="retry_pause"),
  report=Retry(
    "the report of a task's end", (), "the task that keeps the heartbeats does not answer",
    limit="for 10 s, after a failure for 3 s, after a signal for 1 s", pause="fast_poll_interval"),
  release=Retry(
    "the release of a ps", (), "it does not answer", tries=2,
    limit="for `--heartbeat_timeout` if it is silent and the job did not fail"),
)


def format_retries() -> str:
  """Formats the table for docs/run.md, with the default pauses."""
  lines = ["|what is tried again|after which error|how often|pause|", "|-|-|-|-|"]
  for row in RETRIES:
    errors = " or ".join(each.__name__ for each in row.errors)
    separator = " " if errors and row.condition[:1] not in ("", ";") else ""
    lines.append("|%s|%s|%s|%s|" % (
      row.what, errors + separator + row.condition, _say_limit(row), _say_pause(row)))
  return "\n".join(lines) + "\n"


def _say_limit(row):
  tries = "" if row.tries is None else "%d tries" % row.tries
  return ", or ".join(filter(None, [tries, row.limit]))


def _say_pause(row):
  default = Timing()
  if row.pause is None:
    return "none"
  pause = "%g s" % getattr(default, row.pause)
  if row.longest is None:
    return pause
  return "%s, then twice as long each time, up to %g s" % (pause, getattr(default, row.longest))
