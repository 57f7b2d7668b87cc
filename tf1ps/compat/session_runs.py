"""Three corrections of `tf.Session.run`: refused runs, cancelled runs, and its overhead.

Refused runs. A server refuses a request whose id is among the last 100,000 that it has seen.
TensorFlow 2 draws the ids of a run from a generator that is new with each run's thread and has a
seed of 32 bits, so that about one run in 43,000 has the id of another run. It fails with
AbortedError, "The same RunGraph (Worker) request was received twice" (2.21; 6 of 300,000 runs, on
1.15.5 none). A refused run has done nothing on that task. Where a run has parts on several tasks,
the others may have run: a model's update needs its variables from all of them and is not made, but
an iterator may have moved on. Where another part is cancelled for it, its text may come in a
CancelledError.

Cancelled runs. Where a server drops a session, the run's parts on other tasks are cancelled, and
TensorFlow 2.21 may report these first, or alone: CancelledError, "RecvFromRemoteAsync is
cancelled". A ps does so when another process of a task opens a session on it. Nobody has cancelled
such a run, so it raises AbortedError, after which a new session is made. Where a queue is closed
under a run, the error names the queue's operation, and stays.

Prepared runs. `tf.Session.run` analyses its nested fetches in each run, which with those of a dozen
hooks takes longer than a small model's own Python. `tf.Session.make_callable` does it once, and its
result takes a third of the time; but its errors name neither the operation nor the line that
created it. `tf.Session` adds these in its private method `_do_call`, which has the same name on
both TensorFlows and is used here too.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.compat.error_texts import error_causes
from tf1ps.compat.retries import RETRIES

_REFUSED = re.compile(r"The same .* request was received twice")
_RECEIVE = re.compile(r"(\[_Derived_\])?Recv(FromRemote)?Async is cancelled")
_BY_A_CALLER = re.compile(r"\w+ operation was cancelled|Step was cancelled")
_KEPT = 64  # sets of fetches; a caller with other fetches in each run gains nothing


def is_refused_run(error: BaseException) -> bool:
  """Returns whether a run failed because the server took it for another run."""
  return isinstance(error, RETRIES.run.errors) and any(map(_REFUSED.match, error_causes(error)))


def retry_refused_run(
  function: Callable, *args, on_refusal: Optional[Callable[[], None]] = None, **kwargs
):
  """Calls a function that makes a run; calls it again where the run is refused by mistake.

  `on_refusal` is called before each further try. Returns the function's result. A run that nobody
  cancelled raises AbortedError. An error whose text is not UTF-8, which TensorFlow raises as
  UnicodeDecodeError, becomes an UnknownError.
  """
  for _ in range(RETRIES.run.tries - 1):  # more refusals do not come by chance
    try:
      return _call(function, *args, **kwargs)
    except RETRIES.run.errors as error:
      if not is_refused_run(error):
        raise
    if on_refusal is not None:
      on_refusal()
  return _call(function, *args, **kwargs)


def _call(function, *args, **kwargs):
  try:
    return function(*args, **kwargs)
  except tf.errors.CancelledError as error:
    if is_refused_run(error) or not _is_dropped(error):
      raise
    raise tf.errors.AbortedError(error.node_def, error.op, "a task has dropped the run: %s" % (
      "; ".join(error_causes(error)))) from error
  except UnicodeDecodeError as error:  # TensorFlow 1.15 ends the process instead
    text = error.object.decode("utf-8", "replace")
  raise tf.errors.UnknownError(None, None, text)


def _is_dropped(error):
  causes = error_causes(error)
  return any(map(_RECEIVE.match, causes)) and not any(map(_BY_A_CALLER.match, causes))


class PreparedRuns:
  """The runs that a session has made before; for any thread."""

  def __init__(self):
    self._made: Dict[Tuple, Tuple[Callable, Any]] = {}

  def find(self, session: tf.Session, make_callable: Callable,
           fetches) -> Optional[Callable[[], Any]]:
    """Returns a callable with the result of `run(fetches)` in the session of this object.

    `make_callable` is TensorFlow's own method of the session. Returns None where there is nothing
    to fetch, or anything but tensors and operations in lists, tuples and dicts.
    """
    parts: List = []
    if not _describe(fetches, parts) or not any(isinstance(part, int) for part in parts):
      return None
    key = tuple(parts)
    made = self._made.get(key)
    if made is None:
      if len(self._made) >= _KEPT:
        self._made.clear()
      # The fetches are kept as well, because the key has the identities of tensors.
      made = self._made[key] = make_callable(fetches), fetches
    return lambda: session._do_call(made[0])

  def clear(self) -> None:
    """Drops all runs, because they hold the session."""
    self._made.clear()


def _describe(fetches, parts):
  """Appends the parts of the fetches' key; returns whether the fetches have a key."""
  if isinstance(fetches, (tf.Tensor, tf.Operation)):
    parts.append(id(fetches))
    return True
  if isinstance(fetches, dict):
    parts.append((type(fetches), tuple(fetches)))
    return all(_describe(value, parts) for value in fetches.values())
  if isinstance(fetches, (list, tuple)):
    parts.append((type(fetches), len(fetches)))
    return all(_describe(value, parts) for value in fetches)
  return False


def can_prepare(feed_dict, options: Optional[tf.RunOptions]) -> bool:
  """Returns whether `PreparedRuns` can make a run: it has no feeds and no options."""
  return not feed_dict and (options is None or options.ByteSize() == 0)
