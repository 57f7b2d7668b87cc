"""The cluster that the tests of replication share: it is started once, as it takes longest."""
from __future__ import annotations

import pytest

from tests.replication import nodes as nodes_lib


@pytest.fixture(scope="session")
def nodes(forks):
  """A ps and three workers, each with two CPU devices; tests have graphs in containers."""
  with nodes_lib.started(forks) as started:
    yield started
