from __future__ import annotations

import math

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.program import schedules

RATE = 0.5


def linear(step, steps, end):
  return RATE * (1 - min(step, steps) / steps * (1 - end))


def cosine(step, steps, end):
  part = 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
  return RATE * ((1 - end) * part + end)


# The text, and the rate before each update by hand.
CASES = {
  "exponential:4:0.5": lambda step: RATE * 0.5 ** (step / 4),
  "exponential:4:0.5:staircase": lambda step: RATE * 0.5 ** (step // 4),
  "cosine:8": lambda step: cosine(step, 8, 0.0),
  "cosine:8:0.1": lambda step: cosine(step, 8, 0.1),
  "linear:8": lambda step: linear(step, 8, 0.0),
  "linear:8:0.2": lambda step: linear(step, 8, 0.2),
  "piecewise:3:0.1:6:0.01": lambda step: RATE * (1 if step <= 3 else 0.1 if step <= 6 else 0.01),
  "warmup:5": lambda step: RATE * min(1, (step + 1) / 5),
  "warmup:5, cosine:8": lambda step: cosine(step, 8, 0.0) * min(1, (step + 1) / 5),
}


@pytest.mark.parametrize("kind", ["resource", "ref"])
@pytest.mark.parametrize("text", CASES)
def test_values(text, kind):
  with tf.Graph().as_default(), tf.variable_scope("", use_resource=kind == "resource"):
    step = tf.train.get_or_create_global_step()
    rate = schedules.build_schedule(schedules.parse_schedule(text), RATE, step)
    following = tf.assign_add(step, 1).op
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      found = []
      for _ in range(12):
        found.append(session.run(rate))
        session.run(following)
  assert rate.dtype == tf.float32 and rate.shape == []
  assert found == pytest.approx([CASES[text](step) for step in range(12)], abs=1e-7)


def test_no_schedule_is_the_number():
  assert schedules.build_schedule(None, RATE, None) == RATE


@pytest.mark.parametrize("text, problem", [
  ("", "must be a number, warmup:STEPS, a decay (exponential, cosine, linear, piecewise), or these "
       "in this order with commas between them, not ''"),
  ("cosin:100", "with commas between them, not 'cosin'"),
  ("exponential:1000", "must have exponential:STEPS:FACTOR or exponential:STEPS:FACTOR:staircase, "
                       "not 'exponential:1000'"),
  ("exponential:0:0.9", "must have a number of steps, 1 or more, in the place of '0' in "
                        "'exponential:0:0.9'"),
  ("exponential:10:x", "must have a factor of the learning rate, 0 or more, in the place of 'x' in "
                       "'exponential:10:x'"),
  ("exponential:10:nan", "in the place of 'nan'"),
  ("exponential:10:0.9:stairs", "must have exponential:STEPS:FACTOR"),
  ("cosine", "must have cosine:STEPS or cosine:STEPS:FACTOR, not 'cosine'"),
  ("cosine:1.5", "in the place of '1.5'"),
  ("cosine:5:-1", "in the place of '-1'"),
  ("linear:5:0.1:2", "must have linear:STEPS or linear:STEPS:FACTOR"),
  ("piecewise:100", "must have piecewise:STEP:FACTOR, with further :STEP:FACTOR"),
  ("piecewise:100:0.1:100:0.01", "must have rising steps in 'piecewise:100:0.1:100:0.01'"),
  ("warmup", "must have warmup:STEPS, not 'warmup'"),
  ("warmup:5,warmup:6", "must have one warmup, not two"),
  ("cosine:5,linear:6", "must have one decay, not both cosine and linear"),
])
def test_what_is_wrong(text, problem):
  with pytest.raises(ValueError) as caught:
    schedules.parse_schedule(text)
  assert problem in str(caught.value)
