from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.transfer import step_time, step_trace, traffic

PS, OTHER_PS, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:0"


def ran(name, task, start, end, kind="MatMul", needs=()):
  return step_trace.Ran(name, kind, list(needs), task, start, end)


def moved(name, source, destination, sent, arrived):
  return step_trace.Transfer(name, 4, source, destination, sent, arrived)


# A read, its way, a product, the way of the gradient, the update; 5 microseconds between all.
STEP = step_trace.Trace(
  [moved("read", PS, WORKER, 15, 25), moved("gradient", WORKER, PS, 65, 85)],
  [ran("read", PS, 0, 10), ran("gradient", WORKER, 30, 60, needs=["read_S1"]),
   ran("update", PS, 90, 100, needs=["read", "gradient_S3"])])


def microseconds(shares):
  return tuple(round(1e6 * shares.seconds * part) for _, part in shares.named())


def test_each_moment_of_a_step():
  shares = step_time.time_shares(STEP)
  assert microseconds(shares) == (20, 30, 30, 20)
  assert sum(shares[:4]) == pytest.approx(1.0) and shares.seconds == pytest.approx(100e-6)
  assert str(shares) == "20 % pulling, 30 % computing, 30 % pushing, 20 % waiting"


def test_what_the_session_takes_around_it_is_waiting():
  assert microseconds(step_time.time_shares(STEP, 150e-6)) == (20, 30, 30, 70)
  assert microseconds(step_time.time_shares(STEP, 50e-6)) == (
    20,
    30,
    30,
    20,
  )  # a faster one than this


def test_what_hides_behind_computing():
  hidden = moved("next", PS, WORKER, 20, 70)
  trace = STEP._replace(transfers=STEP.transfers + [hidden])
  # 5 between arrival and product, 5 between product and gradient's way, 5 of that way.
  assert microseconds(step_time.time_shares(trace)) == (35, 30, 25, 10)


@pytest.mark.parametrize("kind", ["QueueDequeueV2", "IteratorGetNext", "BarrierTakeMany", "Unstage",
                                  "AccumulatorTakeGradient"])
@pytest.mark.parametrize("task", [PS, WORKER])
def test_what_blocks_is_waiting(kind, task):
  trace = STEP._replace(ops=STEP.ops + [ran("queue", task, -50, 100, kind)])
  assert microseconds(step_time.time_shares(trace)) == (20, 30, 30, 70)


def test_what_an_update_needs_and_leads_to():
  """What follows an update, also on another ps, is pushing; what only the ps need is not."""
  trace = step_trace.Trace([moved("gradient", WORKER, PS, 0, 10)], [
    ran("update", PS, 10, 20, needs=["gradient_S9"]), ran("next", PS, 20, 24, needs=["update"]),
    ran("then", OTHER_PS, 30, 40, needs=["update_S11"]), ran("read", PS, 40, 50, needs=["v"])])
  assert microseconds(step_time.time_shares(trace)) == (10, 0, 34, 6)


@pytest.mark.parametrize("ahead", [-1000, 1000])
def test_the_clock_of_another_machine(ahead):
  """Transfers are noted by who received them, operations by who ran them."""
  trace = step_trace.Trace(
    [STEP.transfers[0], STEP.transfers[1]._replace(sent=65 + ahead, arrived=85 + ahead)],
    [op._replace(start=op.start + ahead, end=op.end + ahead) if op.task == PS else op
     for op in STEP.ops])
  assert microseconds(step_time.time_shares(trace)) == (20, 30, 30, 20)


def test_nothing_traced():
  with pytest.raises(ValueError, match="Run with trace_level=tf.RunOptions.FULL_TRACE"):
    step_time.time_shares(step_trace.read_trace(tf.RunMetadata()))


@pytest.fixture(scope="module")
def two_ps(forks):
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    yield tasks


@pytest.mark.parametrize("size", [10, 100000])  # the label of a large one tells no bytes
def test_a_real_trace(two_ps, size):
  with tf.Graph().as_default():
    value = tf.placeholder(tf.float32, [size], "value")
    with tf.device(PS):
      here = tf.negative(value, name="here")
    with tf.device(OTHER_PS):
      there = tf.negative(here, name="there")
    with tf.Session("grpc://" + two_ps[0].address) as session:
      assert list(session.run(there, {value: np.ones([size])})) == [1.0] * size

      def traced():
        metadata = tf.RunMetadata()
        session.run(there.op, {value: np.ones([size])},
                    tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
        found = step_trace.read_trace(metadata)
        return found if found.transfers else None  # not noted in each run

      trace = harness.wait_until(traced)
  assert [(one.name, one.bytes, one.source, one.destination) for one in trace.transfers] == [
    ("here", 4 * size, PS, OTHER_PS)]
  assert [(op.name, op.type, op.task) for op in sorted(trace.ops, key=lambda op: op.name)] == [
    ("here", "Neg", PS), ("there", "Neg", OTHER_PS)]
  assert [step_time._RECEIVED.sub("", op.needs[0]) for op in trace.ops if op.name == "there"] == [
    "here"]
  way, = trace.transfers
  assert all(op.start <= op.end for op in trace.ops) and way.sent < way.arrived
  report = step_trace.sent_messages(trace, 2)
  assert report == traffic.StepTraffic(
    [traffic.Message("here", PS, OTHER_PS, 4 * size, traffic.RUN)], 2)
  assert report.across == traffic.Total(2 * size, 0.5, 0.0, 0)
  assert step_time.time_shares(trace).pushing > 0
