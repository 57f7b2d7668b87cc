"""What the tests of `tf1ps.v1` run in: processes in graph mode, with tf.estimator imported."""
from __future__ import annotations

import pytest

from tests import harness


@pytest.fixture(scope="session")
def forks(nothing_left_behind):
  """Like the fixture of tests/conftest.py.

  The import of tf.estimator takes longer than most of these tests, so it happens once.
  """
  with harness.Forks("tf1ps.v1", "tf1ps.v1.estimator") as shared:
    yield shared


@pytest.fixture
def start_without_v1(common_forks):
  """Like `start`, for processes that import `tf1ps.v1` themselves."""
  with common_forks.starts() as start_one:
    yield start_one
