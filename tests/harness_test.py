from __future__ import annotations

from tests import cluster_tasks


def test_the_last_line_is_not_one_of_tensorflows_log(start):
  task = start("task", cluster_tasks.say, "my last words\n"
               "I0000 00:00:1795701853.095935   10574 worker.cc:216] Cancellation requested.")
  assert task.wait() == 0
  assert task.last_line == "my last words" and len(task.lines) == 2
