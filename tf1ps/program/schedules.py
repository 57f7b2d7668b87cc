"""Learning-rate schedules of the flag --learning_rate: their texts, and their values.

A schedule is a warm-up, a decay, or both, with a comma between them. Its values depend only on the
global step, and each part multiplies the learning rate r:

  warmup:N                r (step + 1) / N before global step N
  exponential:N:F         tf.train.exponential_decay: r F^(step / N)
  exponential:N:F:staircase   the same, in jumps: r F^floor(step / N)
  cosine:N, cosine:N:A    tf.train.cosine_decay: from r to A r at step N, which is 0 without A
  linear:N, linear:N:A    tf.train.polynomial_decay of power 1: from r to A r at step N
  piecewise:N:F:M:G       tf.train.piecewise_constant: r, after step N r F, after step M r G

This module imports TensorFlow only to build a schedule, because the programs check their flags
before that import.
"""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Tuple

WARMUP = "warmup"
EXPONENTIAL, COSINE, LINEAR, PIECEWISE = DECAYS = ("exponential", "cosine", "linear", "piecewise")
STAIRCASE = "staircase"

_FORMS = {
  WARMUP: "warmup:STEPS",
  EXPONENTIAL: "exponential:STEPS:FACTOR or exponential:STEPS:FACTOR:staircase",
  COSINE: "cosine:STEPS or cosine:STEPS:FACTOR",
  LINEAR: "linear:STEPS or linear:STEPS:FACTOR",
  PIECEWISE: "piecewise:STEP:FACTOR, with further :STEP:FACTOR",
}


class Schedule(NamedTuple):
  """A parsed schedule."""

  warmup: int = 0  # the steps of the warm-up
  decay: str = ""  # a name in DECAYS, or ""
  steps: Tuple[int, ...] = ()  # of the decay; PIECEWISE has several
  factors: Tuple[float, ...] = ()  # the factor after each of these steps
  is_staircase: bool = False


def parse_schedule(text: str) -> Schedule:
  """Parses the text of a schedule in --learning_rate; raises ValueError."""
  schedule = Schedule()
  for part in text.split(","):
    name, *values = part.strip().split(":")
    if name not in _FORMS:
      raise ValueError("must be a number, warmup:STEPS, a decay (%s), or these in this order with "
                       "commas between them, not %r" % (", ".join(DECAYS), name))
    if name == WARMUP:
      if schedule.warmup:
        raise ValueError("must have one warmup, not two")
      if len(values) != 1:
        raise _form_error(name, part)
      schedule = schedule._replace(warmup=_step(values[0], part))
      continue
    if schedule.decay:
      raise ValueError("must have one decay, not both %s and %s" % (schedule.decay, name))
    schedule = _parse_decay(schedule._replace(decay=name), values, part)
  return schedule


def _parse_decay(schedule: Schedule, values: List[str], part: str) -> Schedule:
  name = schedule.decay
  if name == PIECEWISE:
    if not values or len(values) % 2:
      raise _form_error(name, part)
    steps = tuple(_step(value, part) for value in values[::2])
    if list(steps) != sorted(set(steps)):
      raise ValueError("must have rising steps in %r" % part.strip())
    return schedule._replace(
      steps=steps, factors=tuple(_factor(value, part) for value in values[1::2]))
  is_staircase = name == EXPONENTIAL and values[2:] == [STAIRCASE]
  values = values[:2] if is_staircase else values
  least = 2 if name == EXPONENTIAL else 1
  if not least <= len(values) <= 2:
    raise _form_error(name, part)
  factor = _factor(values[1], part) if len(values) == 2 else 0.0
  return schedule._replace(
    steps=(_step(values[0], part),), factors=(factor,), is_staircase=is_staircase)


def _form_error(name: str, part: str) -> ValueError:
  return ValueError("must have %s, not %r" % (_FORMS[name], part.strip()))


def _step(text: str, part: str) -> int:
  if not text.isdigit() or not int(text):
    raise ValueError("must have a number of steps, 1 or more, in the place of %r in %r" % (
      text, part.strip()))
  return int(text)


def _factor(text: str, part: str) -> float:
  try:
    value = float(text)
  except ValueError:
    value = math.nan
  if not (math.isfinite(value) and value >= 0):
    raise ValueError("must have a factor of the learning rate, 0 or more, in the place of %r in %r"
                     % (text, part.strip()))
  return value


def build_schedule(schedule: Optional[Schedule], learning_rate: float, global_step):
  """Builds a learning rate that follows a schedule, beside the global step.

  A run reads the global step before its update raises it.

  Args:
    schedule: the parsed schedule; None returns `learning_rate`.
    learning_rate: the rate that the schedule multiplies.
    global_step: the variable that counts updates.

  Returns:
    A float32 scalar tensor.
  """
  if schedule is None:
    return learning_rate
  import tensorflow.compat.v1 as tf

  graph = tf.get_default_graph()
  with tf.control_dependencies(None), graph.colocate_with(global_step.op), \
      tf.name_scope("learning_rate"):
    # A sum, because the read value of a ref variable may change with the variable.
    step = tf.add(tf.cast(global_step.read_value(), tf.int64), 0)
    rate = _build_decay(tf, schedule, learning_rate, step)
    if schedule.warmup:
      rate *= tf.minimum(1.0, tf.cast(step + 1, tf.float32) / schedule.warmup)
    return tf.identity(rate, name="rate")


def _build_decay(tf, schedule, rate, step):
  if not schedule.decay:
    return tf.constant(rate, tf.float32)
  steps, factor = schedule.steps[0], schedule.factors[0]
  if schedule.decay == EXPONENTIAL:
    return tf.train.exponential_decay(rate, step, steps, factor, schedule.is_staircase)
  if schedule.decay == COSINE:
    return tf.train.cosine_decay(rate, step, steps, factor)
  if schedule.decay == LINEAR:
    return tf.train.polynomial_decay(rate, step, steps, rate * factor)
  return tf.train.piecewise_constant(
    step, list(schedule.steps), [rate, *(rate * factor for factor in schedule.factors)])
