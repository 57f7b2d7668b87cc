"""The queue of steps, without TensorFlow."""
from __future__ import annotations

import threading

import pytest

from tests.harness import LIMIT
from tf1ps.coordinator.steps import StepCancelledError, StepError, StepQueue


def nothing():
  pass


def put(queue, count=1, timeout=0.2):
  return [queue.put("f", (), False, timeout, nothing) for _ in range(count)]


def take_one(queue):
  step, = queue.take(0.0)
  return step


def test_steps_are_taken_in_their_order_and_a_lost_one_comes_first():
  queue = StepQueue(9)
  steps = put(queue, 3)
  first = take_one(queue)
  assert first is steps[0] and first.number == 1
  queue.give_back(first)
  assert [take_one(queue).number for _ in range(3)] == [1, 2, 3]
  assert queue.take(0.0) == [] and queue.retries == 1 and not queue.is_empty()


class Function:
  def __init__(self, key):
    self.key = key


def test_steps_of_one_function_are_taken_together_where_enough_wait():
  queue = StepQueue(9)
  for key in "ffffgff":
    queue.put(Function(key), (), False, 0.2, nothing)
  taken = [[step.number for step in queue.take(0.0, lambda step: 1 if step.number == 3 else 2)]
           for _ in range(6)]
  assert taken == [[1, 2], [3], [4], [5], [6, 7], []]
  assert not queue.is_empty()


def test_a_result_ends_the_step_and_the_join():
  queue = StepQueue(9)
  step, = put(queue)
  with pytest.raises(TimeoutError, match="1 steps are not done after 0.05 s"):
    queue.join(0.05, nothing)
  with pytest.raises(TimeoutError, match="step 1 is not done within 0.05 s"):
    step.fetch(0.05)
  queue.finish(take_one(queue), 7, None)
  queue.join(0.05, nothing)
  assert step.done() and step.fetch() == 7 and queue.completed == 1 and queue.is_empty()


def test_a_full_queue_lets_the_program_wait():
  queue = StepQueue(2)
  put(queue, 2)
  with pytest.raises(TimeoutError, match="the queue of 2 steps is full after 0.05 s"):
    put(queue, timeout=0.05)
  waiting = threading.Thread(target=put, args=(queue, 1, LIMIT))
  waiting.start()
  take_one(queue)
  waiting.join(LIMIT)
  assert not waiting.is_alive() and queue.scheduled == 3


def test_an_error_cancels_the_steps_that_wait_and_is_raised_once():
  queue = StepQueue(9)
  steps = put(queue, 4)
  failed, running = take_one(queue), take_one(queue)
  error = StepError(1, "step 1 failed")
  queue.fail(error, failed)
  with pytest.raises(StepError, match="step 1 failed"):
    steps[0].fetch(0)
  with pytest.raises(StepCancelledError, match="step 3 did not run: step 1 failed") as cancelled:
    steps[2].fetch(0)
  assert cancelled.value.__cause__ is error
  with pytest.raises(TimeoutError):
    queue.join(0.05, nothing)  # step 2 is still under way
  queue.finish(running, "late", None)
  with pytest.raises(StepError) as caught:
    queue.join(0.05, nothing)
  assert caught.value is error and caught.value.number == 1 and steps[1].fetch(0) == "late"
  queue.join(0.05, nothing)
  assert put(queue)[0].number == 5


def test_a_step_that_is_lost_after_an_error_is_cancelled():
  queue = StepQueue(9)
  put(queue, 2)
  failed, lost = take_one(queue), take_one(queue)
  queue.fail(StepError(1, "bad"), failed)
  queue.give_back(lost)
  with pytest.raises(StepCancelledError):
    lost.fetch(0)
  assert queue.retries == 0


def test_an_error_without_a_step_is_raised_every_time():
  queue = StepQueue(9)
  put(queue, 1)
  take_one(queue)
  queue.fail(ValueError("the ps are gone"))
  for _ in range(2):
    with pytest.raises(ValueError, match="gone"):
      queue.join(0.05, nothing)


def test_a_closed_queue_cancels_what_waits():
  queue = StepQueue(9)
  step, = put(queue)
  queue.close()
  assert queue.take(LIMIT) == []
  with pytest.raises(StepCancelledError, match="the coordinator has ended"):
    step.fetch(0)


def test_a_result_that_stayed_is_taken_once():
  queue = StepQueue(9)
  queue.put("f", (), True, None, nothing)
  step = take_one(queue)
  taken = []
  queue.finish(step, None, lambda: taken.append(1) or "far")
  assert step.fetch() == "far" and step.fetch() == "far" and taken == [1]


def test_a_result_that_was_lost_where_it_stayed():
  queue = StepQueue(9)
  queue.put("f", (), True, None, nothing)
  step = take_one(queue)

  def take():
    raise StepError(1, "lost with worker 1")

  queue.finish(step, None, take)
  for _ in range(2):
    with pytest.raises(StepError, match="lost with worker 1"):
      step.fetch()
