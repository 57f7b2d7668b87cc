"""A cluster that the tests of this room share: 2 ps and 2 workers; tests have containers."""
from __future__ import annotations

import pytest

from tests.replication import nodes as nodes_lib


@pytest.fixture(scope="session")
def cluster(forks):
  with nodes_lib.started(forks, num_ps=2, num_workers=2) as started:
    yield started
