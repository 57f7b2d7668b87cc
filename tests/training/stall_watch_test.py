"""What a worker says that makes no step, and how it ends."""
from __future__ import annotations

import contextlib
import importlib
import logging
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import local_job
from tf1ps.checkpoint import global_step
from tf1ps.monitoring import status
from tf1ps.state import latest_heartbeat
from tf1ps.training import options, stall_watch
from tf1ps.training.counts import Counts


@contextlib.contextmanager
def messages():
  """Yields the list of tf1ps's messages. A busy machine may stall a step that the test does not."""
  lines = []

  class Handler(logging.Handler):
    def emit(self, record):
      lines.append(record.getMessage())

  logger, handler = logging.getLogger("tf1ps"), Handler()
  logger.addHandler(handler)
  try:
    yield lines
  finally:
    logger.removeHandler(handler)


def wait_for(lines, begin, *texts):
  """Waits for a message with this begin and all of these texts; returns it."""
  def find():
    return [line for line in lines
            if line.startswith(begin) and all(text in line for text in texts)]

  return harness.wait_until(find, what="a message with %s" % (texts,))[0]


def input_that_holds(*holds):
  """The line, where the training's third batch, and each one after it, calls one of `holds`."""
  def input_fn(mode, shard):
    features, labels = local_job.line_input(mode, shard)
    if mode != "train":
      return features, labels
    batches = []

    def count(x):
      batches.append(x)
      if 0 <= len(batches) - 3 < len(holds):
        holds[len(batches) - 3]()
      return x

    held = tf.numpy_function(count, [features], tf.float32)
    held.set_shape(features.shape)
    return held, labels

  return input_fn


@pytest.mark.slow
def test_a_stalled_worker_prints_stacks_and_what_it_waits_for_and_may_go_on():
  with messages() as lines:
    def hold():
      wait_for(lines, "stalled: /job:worker/task:0 has made no step for ", " in wait_until",
               "it waits for a run of its session on /job:ps/task:0 (answers); Python code of the "
               "program in another thread, harness.py:")

    def hold_again():
      wait_for(lines, "the stall is over: this worker makes steps again")

    outcome = local_job.train(input_that_holds(hold, hold_again), steps=8, stall_after=0.5)
  assert outcome.steps == 8
  stacks = wait_for(lines, "the threads of this process:\n", "thread MainThread:", "in hold\n")
  line = wait_for(lines, "stalled: ", "harness.py")
  assert line in lines[lines.index(stacks) + 1:]


class HoldingHook(tf.train.SessionRunHook):
  """Calls a function after the second step."""

  def __init__(self, hold):
    self._hold, self._runs = hold, 0

  def after_run(self, run_context, run_values):
    self._runs += 1
    if self._runs == 2:
      self._hold(run_context.session)


def model_with(hook):
  return lambda *args: local_job.line_model(*args)._replace(hooks=[hook])


@pytest.mark.slow
def test_a_hook_of_the_program_that_does_not_return_is_named():
  with messages() as lines:
    def wait_in_the_hook(session):
      wait_for(lines, "stalled: ", "it waits for Python code of the program, harness.py:")

    local_job.train(model_fn=model_with(HoldingHook(wait_in_the_hook)), steps=4, stall_after=0.5)


class Clock:
  """Stands in for the module `time`: it stands until the test begins it."""

  began = None

  def monotonic(self):
    return 0.0 if self.began is None else time.monotonic() - self.began


@pytest.mark.slow
def test_a_worker_that_shall_fail_ends_after_the_same_time_once_more(set_timing, monkeypatch):
  set_timing(stall_watch, force_exit_limit=60.0)  # else this process would end by force
  clock = Clock()  # a busy machine may take long for the steps before
  monkeypatch.setattr(stall_watch, "time", clock)

  def wait_in_the_hook(session):
    clock.began = time.monotonic()
    harness.wait_until(lambda: session.is_aborted, what="the end of the session")

  with pytest.raises(stall_watch.StalledError, match=(
      r"no step for \d+ s \(--stall_after with :fail\): it waits for Python code of the "
      r"program, harness\.py:\d+ in wait_until")):
    local_job.train(model_fn=model_with(HoldingHook(wait_in_the_hook)), steps=9,
                    stall_after="2:fail")


@pytest.mark.slow
def test_without_a_time_there_is_no_watch():
  with messages() as lines:
    local_job.train(steps=2, stall_after=0.0)
  assert not [text for text in lines if "stall" in text]
  with pytest.raises(ValueError, match="--stall_after must be seconds from 0 on, or"):
    options.check_options(options.Options(steps=1, stall_after="0:fail"))


@pytest.mark.slow
def test_the_queue_from_which_a_run_takes_is_named():
  with messages() as lines:
    def input_fn(mode, shard):
      if mode != "train":
        return local_job.line_input(mode, shard)
      made = []

      def make():
        if len(made) == 2:
          wait_for(lines, "stalled: ", "the queue my_queue with 0 elements")
        made.append(np.float32(len(made)))
        return made[-1]

      queue = tf.FIFOQueue(9, [tf.float32], [[]], name="my_queue")
      value = tf.numpy_function(make, [], tf.float32)
      value.set_shape([])
      tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(value)]))
      x = queue.dequeue_many(1)
      return x, 3 * x + 2

    local_job.train(input_fn, steps=4, stall_after=0.5)


@pytest.mark.slow
def test_a_step_that_lasts_much_longer_than_the_others_is_stalled(set_timing):
  set_timing(stall_watch, stalled_least=1000.0)
  seen = []

  def find():
    own = latest_heartbeat().own()
    return own if "stalled" in own.figures else None

  def hold():
    assert find() is None
    set_timing(stall_watch, stalled_least=0.3)
    seen.append(harness.wait_until(find, what="a stalled worker"))

  outcome = local_job.train(input_that_holds(hold), steps=6, stall_after=0.0)
  assert outcome.steps == 6 and find() is None
  seconds, slowest = seen[0].figures["stalled"]
  assert seconds >= max(0.3, 10 * slowest - 0.1) and status.state_of(seen[0]) == "stalled"


def test_a_wait_in_a_hook_of_tf1ps_is_no_stall(set_timing):
  set_timing(stall_watch, stalled_least=0.0)
  watch = stall_watch.StallWatch(None, 0.0, False, Counts(global_step.GlobalStepTracker()), [])
  watch.after_create_session(None, None)
  for _ in range(150):
    watch.before_run(None)
    watch.after_run(None, None)
  assert watch.stalled() is None and len(watch._took) == 100
  watch.before_run(None)
  harness.wait_until(watch.stalled)
  watch._frames_in_loop = lambda: [Frame("time"), Frame("tf1ps.checkpoint.saving")]
  assert watch.stalled() is None


class Frame(object):
  """A frame of a module."""

  def __init__(self, name):
    self.f_globals = {"__name__": name}


def test_the_places_of_waits_are_modules():
  for name in [*stall_watch._PLACES, stall_watch._RUN, stall_watch._LOOP]:
    assert importlib.import_module(name).__name__ == name
