"""Runs of fetches that were fetched before: what TensorFlow works out of them is worked out once.

`tf.Session.run` goes through its nested fetches anew in each run, which with those of a dozen hooks
takes longer than a small model's own Python. `tf.Session.make_callable` does it once, and what it
makes takes a third of the time; but its errors name neither the operation nor the line that
created it. `tf.Session` adds these in a method of its own, `_do_call` on both TensorFlows, by which
it is done here too: that is the private symbol.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow.compat.v1 as tf

_KEPT = 64  # sets of fetches; who fetches others each time gains nothing


class PreparedRuns:
  """The runs that a session has made before; from any thread."""

  def __init__(self):
    self._made: Dict[Tuple, Tuple[Callable, Any]] = {}

  def find(self, session: tf.Session, make_callable: Callable,
           fetches) -> Optional[Callable[[], Any]]:
    """A callable that returns what `run(fetches)` does.

    Args:
      session: in which it is to run; always the same one.
      make_callable: its `make_callable`, as TensorFlow has it.
      fetches: as for `tf.Session.run`.

    Returns:
      The callable; None where there is nothing to fetch, or something else than tensors and
      operations in lists, tuples and dicts.
    """
    parts: List = []
    if not _describe(fetches, parts) or not any(isinstance(part, int) for part in parts):
      return None
    key = tuple(parts)
    found = self._made.get(key)
    if found is None:
      if len(self._made) >= _KEPT:
        self._made.clear()
      # The fetches are kept, too: the key has the identities of tensors.
      found = self._made[key] = make_callable(fetches), fetches
    return lambda: session._do_call(found[0])

  def clear(self) -> None:
    """Forgets all runs, which hold the session."""
    self._made.clear()


def _describe(fetches, parts):
  """Appends what tells the fetches from others; returns whether that is possible."""
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
  """Whether a run is one that `PreparedRuns` can make: fed with nothing, with no option set."""
  return not feed_dict and (options is None or options.ByteSize() == 0)
