from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.training.counts import ExampleCounter


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


class FailAfter(tf.train.SessionRunHook):
  """Loses the session once, after so many steps."""

  def __init__(self, steps):
    self._left = steps

  def after_run(self, run_context, run_values):
    self._left -= 1
    if self._left == 0:
      raise tf.errors.AbortedError(None, None, "lost")


def test_counts_batches_of_one_size():
  local_loop.Model()
  counts = local_loop.counts(32)
  local_loop.run([ExampleCounter(counts)], 3)
  assert counts.examples == counts.own_examples == 96


def test_counts_batches_of_their_own_sizes():
  model = local_loop.Model()
  counts = local_loop.counts(tf.cast(model.loss, tf.int32) + 10)  # 10, 11, 12, ...
  local_loop.run([ExampleCounter(counts)], 3)
  assert (counts.examples, counts.largest) == (33, 12)


def test_adds_what_was_trained_on_before_once():
  local_loop.Model()
  counts = local_loop.counts(4)
  run = types.SimpleNamespace(examples_before=100)
  local_loop.run([ExampleCounter(counts, run), FailAfter(2)], 3)
  assert (counts.examples, counts.own_examples) == (116, 16)


def test_batches_that_are_in_no_update_are_late():
  counts = local_loop.counts()
  counts.note_batches([4, 5, 6], [True, False, False])
  counts.note_batches(3)
  assert (counts.examples, counts.late, counts.late_batches, counts.largest) == (7, 11, 2, 6)


def test_a_loop_goes_on_from_the_counts_of_another_one():
  before, counts = local_loop.counts(), local_loop.counts()
  before.tracker.add_steps(3)
  before.add_beside(2)
  before.note_batches([4, 5], [True, False])
  counts.go_on(before)
  run = types.SimpleNamespace(examples_before=100)
  ExampleCounter(counts, run).after_create_session(None, None)
  assert (counts.steps, counts.examples, counts.late, counts.late_batches) == (5, 4, 5, 1)


def test_each_kind_of_step_shows_as_progress():
  counts, seen = local_loop.counts(), []
  for change in (lambda: counts.tracker.add_steps(1), lambda: counts.add_beside(1),
                 lambda: counts.add_examples(1), lambda: counts.add_examples(0, 1)):
    seen.append(counts.progress)
    change()
    assert counts.progress not in seen
