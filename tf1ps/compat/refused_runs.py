"""Runs that TensorFlow refuses by mistake, and makes when asked again.

A server refuses a request whose id is among the last 100,000 that it has seen. TensorFlow 2 draws
the ids of a run from a generator that is new with each run's thread and has a seed of 32 bits, so
that about one run in 43,000 bears the id of another one. It fails with AbortedError, "The same
RunGraph (Worker) request was received twice" (2.21; 6 of 300,000 runs, on 1.15.5 none).

What was refused has not run. Where a run has parts on several tasks, the others may have: a model's
update needs its variables from all of them and is not made, but an iterator may have moved on.
"""

from __future__ import annotations

from typing import Callable, Optional

import tensorflow.compat.v1 as tf

_REFUSED = "request was received twice"
_TRIES = 4  # a run that is refused as often as this was not refused by chance


def is_refused_run(error: BaseException) -> bool:
  """Whether an error of a run says that it was taken for another one."""
  return isinstance(error, tf.errors.AbortedError) and _REFUSED in str(error)


def retry_refused_run(
  function: Callable, *args, on_refusal: Optional[Callable[[], None]] = None, **kwargs
):
  """Returns function(*args, **kwargs), a run; makes it again where it is refused by mistake.

  Args:
    function: makes the run.
    args: its arguments.
    on_refusal: called before each further try.
    kwargs: its arguments.
  """
  for _ in range(_TRIES - 1):
    try:
      return function(*args, **kwargs)
    except tf.errors.AbortedError as error:
      if not is_refused_run(error):
        raise
    if on_refusal is not None:
      on_refusal()
  return function(*args, **kwargs)
