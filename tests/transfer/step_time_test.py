from __future__ import annotations

from tests.transfer.step_trace_test import PS, STEP, WORKER, moved, ran
from tf1ps.transfer import step_time


def test_what_a_run_waited_for():
  queue = ran("queue", PS, 0, 29, "QueueDequeueV2")
  batch = ran("batch", WORKER, 0, 64, "IteratorGetNext")
  trace = STEP._replace(ops=STEP.ops + [queue, batch])
  assert step_time.waits(trace, -8, 120) == [
    (None, -8, 0), (queue, 10, 15), (queue, 25, 29), (batch, 29, 30), (batch, 60, 64),
    (None, 64, 65), (None, 85, 90), (None, 100, 120)]
  assert [wait.is_input for wait in step_time.waits(trace)] == [
    False, False, True, True, False, False]


def test_the_parts_of_waiting_and_of_transfers():
  large = moved("large", PS, WORKER, 12, 20)._replace(bytes=1 << 20)
  batch = ran("batch", WORKER, 0, 30, "IteratorGetNext")
  queue = ran("queue", PS, 60, 65, "QueueDequeueV2")
  shares = step_time.time_shares(STEP._replace(
    transfers=STEP.transfers + [large], ops=STEP.ops + [batch, queue]), 200e-6)
  # Of 200: a queue 5, a batch 7, the large tensor 8, two small ones 25, the ps 20.
  assert (shares.blocked, shares.input, shares.large, shares.on_ps) == (
    5 / 200, 7 / 200, 8 / 200, 20 / 200)


def test_python_code_and_a_lock_wait():
  assert all(step_time.blocks(ran("op", WORKER, 0, 1, kind))
             for kind in ("PyFunc", "EagerPyFunc", "MutexLock", "CollectiveReduceV2"))
  assert not step_time.blocks(ran("op", WORKER, 0, 1, "MatMul"))
