"""Jobs with fixed shares: each worker goes through its own part as often as --epochs says."""
from __future__ import annotations

import pytest

from tests.training.dynamic_ranges_test import LAST, make_job, trained_on
from tests.training.job import codes, last_line

FILES = 6
LINES = 35


@pytest.mark.slow
@pytest.mark.parametrize("source, policy", [
  ("datasets", "files"),
  *[pytest.param(source, policy, marks=pytest.mark.slow) for source, policy in [
    ("datasets", "records"), ("files", "files"),
    ("files", "records"), ("blocks", "records")]]])
def test_each_worker_has_its_four_epochs(start, tmp_path, source, policy):
  for number in range(FILES):
    (tmp_path / ("%d.txt" % number)).write_text(
      "".join("%d\n" % (LINES * number + line) for line in range(LINES)))
  job = make_job(start, tmp_path, "--epochs=4", "--shard=" + policy, "--source=" + source,
                 "--folder=%s" % tmp_path, "--records=%d" % (FILES * LINES), "--shuffled=40")
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  parts = [trained_on(tmp_path, index) for index in range(2)]
  for part, worker in zip(parts, workers):
    assert set(part.values()) == {4} and len(part) == FILES * LINES // 2
    assert last_line(worker, LAST)[1:3] == [
      4 * len(part), "went through its data --epochs=4 times"]
  assert not set(parts[0]) & set(parts[1])
