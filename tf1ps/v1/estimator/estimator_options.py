"""The options of tf1ps for an estimator's job, which a call or the environment sets."""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from tf1ps import placement, training, transfer

_PREFIX = "TF1PS_"
_KINDS = {int: "a whole number", float: "a number of seconds", str: "a text"}


class EstimatorOptions(NamedTuple):
  """The options of the estimators of a process; all tasks of a job need the same."""

  pack_bytes: int = transfer.DEFAULT_PACK_BYTES  # smaller tensors travel together; 0: none
  ps_strategy: str = "round_robin"  # or "greedy": each variable goes to the ps with least bytes
  steps_per_execution: str = "auto"  # the steps of one run: as many as save time, or "1"
  staleness_policy: str = "none"  # of asynchronous updates: max_lead:N, drop:N, or both
  start_timeout: float = 60.0  # seconds for the tasks to join
  end_timeout: float = 300.0  # seconds without a step of a worker that the chief waits for
  heartbeat_timeout: float = 30.0  # seconds of silence until a task counts as lost

  @property
  def staleness(self) -> training.StalenessPolicy:
    """The staleness policy, parsed."""
    return training.parse_staleness_policy(self.staleness_policy)


_given: Optional[EstimatorOptions] = None  # a process global: an estimator has no argument for it


def set_options(**values) -> None:
  """Sets options of the estimators of this process; other options keep their values.

  Call it before the estimator trains. The environment does the same: TF1PS_PACK_BYTES=65536.

  Args:
    **values: fields of `EstimatorOptions`.

  Raises:
    ValueError: an option is unknown, or its value is not allowed.
  """
  global _given
  _given = _checked(current_options(), values, "")


def current_options() -> EstimatorOptions:
  """Returns the options that `set_options` has set, else the options of the environment.

  Raises:
    ValueError: the environment holds a value that an option cannot have.
  """
  if _given is not None:
    return _given
  named = {name: os.environ[_PREFIX + name.upper()] for name in EstimatorOptions._fields
           if os.environ.get(_PREFIX + name.upper())}
  return _checked(EstimatorOptions(), named, _PREFIX)


def _checked(before, values, prefix) -> EstimatorOptions:
  changed = {}
  for name, value in values.items():
    shown = prefix + name.upper() if prefix else name
    if name not in before._fields:
      raise ValueError("estimators have no option %s. The options are %s" % (
        shown, ", ".join(before._fields)))
    kind = type(getattr(EstimatorOptions(), name))
    try:
      changed[name] = kind(value)
      is_kind = kind is not int or str(changed[name]) == str(value)  # int(2.5) is 2
    except (TypeError, ValueError):
      is_kind = False
    problem = _problem_of(name, changed[name]) if is_kind else "must be " + _KINDS[kind]
    if problem:
      raise ValueError("%s=%r %s" % (shown, value, problem))
  return before._replace(**changed)


def _problem_of(name, value) -> str:
  if name == "pack_bytes" and value < 0:
    return "must be 0, which packs nothing, or more bytes"
  if name == "ps_strategy" and value not in placement.STRATEGIES:
    return "must be one of %s" % ", ".join(sorted(placement.STRATEGIES))
  if name == "steps_per_execution" and value not in ("auto", "1"):
    return "must be auto or 1"
  if name == "staleness_policy":
    try:
      policy = training.parse_staleness_policy(value)
    except ValueError as error:
      return str(error)
    if policy.damp or policy.warm_up:
      return "must be none, max_lead:N, drop:N or both: an estimator's optimizer is its own"
  if name.endswith("_timeout") and not value > 0:
    return "must be a positive number of seconds"
  return ""
