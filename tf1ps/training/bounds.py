"""Names the bound of a slow job: the part of a step that takes most of its time, and a remedy.

The shares are those of the chief's traced steps (transfer/step_time.py). A job has no bound
if it was too short for a trace, if its steps are fast, or if no part takes half of their time.
"""

from __future__ import annotations

import statistics
from typing import Dict, Sequence, Tuple

from tf1ps.training.options import BETWEEN_GRAPH, SHARD_DYNAMIC, Options
from tf1ps.transfer import TimeShares

LEAST_SECONDS = 30.0  # the least length of a job with advice; a shorter job gains nothing by it
_FAST_STEP = 1e-3  # seconds; a message to a ps and back takes longer
_LEAST_SHARE = 0.5
_MESSAGES, _BYTES, _COMPUTING, _PS, _INPUT, _WAITING = (
  "messages", "bytes", "computing", "operations on the ps", "input", "waiting")


def say_bound(shares: Sequence[TimeShares], options: Options, seconds: float,
              steps: int = 1, shares_host: bool = False) -> str:
  """Returns "bound by messages (84 %): try --steps_per_execution=8", or "".

  Args:
    shares: the time shares of the chief's traced runs.
    options: the job's options.
    seconds: the time of the training loop.
    steps: the number of training steps in a traced run.
    shares_host: whether another task of the job is on the chief's host.
  """
  if not shares or seconds < LEAST_SECONDS or _FAST_STEP > statistics.mean(
      run.seconds for run in shares) / steps:
    return ""
  name, share = bound_of(shares)
  if share < _LEAST_SHARE:
    return ""
  advice = (_of_messages(options, shares_host) if name == _MESSAGES else _ADVICE[name](options))
  return "bound by %s (%.0f %%)%s" % (name, 100 * share, ": try " + advice if advice else "")


def bound_of(shares: Sequence[TimeShares]) -> Tuple[str, float]:
  """Returns the largest part of the mean step, and its share."""
  mean = TimeShares(*[statistics.mean(values) for values in zip(*shares)])
  parts: Dict[str, float] = {
    _BYTES: mean.large, _COMPUTING: mean.computing, _PS: mean.on_ps, _INPUT: mean.input,
    _WAITING: mean.blocked}
  parts[_MESSAGES] = 1.0 - sum(parts.values())  # small tensors, and the beginning and end of a run
  name = max(parts, key=parts.get)
  return name, parts[name]


def _overlap(options) -> str:
  """Returns the advice to have several steps in flight, if the options allow them."""
  allowed = _is_free(options) and options.shard != SHARD_DYNAMIC and (
    options.gradient_accumulation_steps == 1 and not options.overlaps)
  return "--overlap=2 (older gradients)" if allowed else ""


def _is_free(options) -> bool:
  """Whether a run may make several steps."""
  return (options.replication == BETWEEN_GRAPH and not options.is_synchronous
          and options.staleness.max_lead is None and not options.prefetch)


def _of_messages(options, shares_host) -> str:
  if options.pack_bytes == 0:
    return "to leave out TF1PS_PACK_BYTES=0"
  if _is_free(options) and not options.finds_run_steps and options.run_steps < 8:
    return "--steps_per_execution=8"
  if shares_host and not options.prefetch and not (
      options.config is not None and options.config.inter_op_parallelism_threads):
    return "--threads=1"
  return _overlap(options) or "a larger --batch_size"


def _of_bytes(options) -> str:
  if options.wire_dtype == "float32":
    return "--wire_dtype=bfloat16"
  return _overlap(options) or "another ps"


def _of_waiting(options) -> str:
  is_own = options.replication == BETWEEN_GRAPH and options.sync_replicas
  if not is_own or options.replicas_to_aggregate is not None:
    return ""
  return "--sync_replicas=N with N below the number of workers"


_ADVICE = {
  _BYTES: _of_bytes,
  _COMPUTING: lambda options: "another worker on a machine of its own",
  _PS: lambda options: "another ps",
  _INPUT: lambda options: "to read ahead in input_fn (dataset.prefetch)",
  _WAITING: _of_waiting,
}
