from __future__ import annotations

import itertools
import pathlib

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, retries, session_runs
from tf1ps.compat.timing import Timing

pytestmark = pytest.mark.any_tensorflow
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "run.md"


def test_the_document_has_the_table():
  assert retries.format_retries() in DOCUMENT.read_text(), (
    "put this into docs/run.md:\n" + retries.format_retries())


def test_every_row_says_when_it_ends():
  for row in retries.RETRIES:
    assert row.tries or row.limit, row
    assert row.errors or row.condition, row
    assert {row.pause, row.longest} <= {None, *Timing._fields}, row


def test_pauses_double_up_to_the_longest(set_timing):
  set_timing(retries, retry_pause=0.25, longest_retry_pause=4.0)
  found = list(itertools.islice(retries.RETRIES.session.pauses(), 7))
  assert found == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
  assert list(itertools.islice(retries.RETRIES.thread.pauses(), 3)) == [0.25] * 3
  assert next(retries.RETRIES.run.pauses()) == 0.0
  assert TIMING.retry_pause != 0.25  # that of the tests is another


def test_a_refused_run_is_made_as_often_as_the_table_says():
  calls = []

  def run():
    calls.append(1)
    raise tf.errors.AbortedError(None, None, "The same RunGraph request was received twice")

  with pytest.raises(tf.errors.AbortedError):
    session_runs.retry_refused_run(run)
  assert len(calls) == retries.RETRIES.run.tries
