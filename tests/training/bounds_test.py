from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_job
from tf1ps.training import bounds, traffic_report
from tf1ps.training.options import Options
from tf1ps.transfer import TimeShares


def shares(computing=0.0, waiting=0.0, seconds=0.01, **parts):
  rest = (1 - computing - waiting) / 2
  return TimeShares(rest, computing, rest, waiting, seconds, **parts)


def say(one, seconds=60.0, steps=1, **options):
  return bounds.say_bound([one], Options(**options), seconds, steps)


@pytest.mark.parametrize("one, options, line", [
  (shares(waiting=0.6), {}, "messages (100 %): try --overlap=2 (older gradients)"),
  (shares(waiting=0.6), dict(steps_per_execution=1),
   "messages (100 %): try --steps_per_execution=8"),
  (shares(waiting=0.6), dict(pack_bytes=0),
   "messages (100 %): try to leave out TF1PS_PACK_BYTES=0"),
  (shares(waiting=0.6, seconds=0.1), dict(steps_per_execution=8),
   "messages (100 %): try --overlap=2 (older gradients)"),
  (shares(waiting=0.6), dict(sync_replicas=True), "messages (100 %): try a larger --batch_size"),
  (shares(waiting=0.6), dict(replication="in_graph"),
   "messages (100 %): try a larger --batch_size"),
  (shares(large=0.7), {}, "bytes (70 %): try --wire_dtype=bfloat16"),
  (shares(large=0.7), dict(wire_dtype="float16"),
   "bytes (70 %): try --overlap=2 (older gradients)"),
  (shares(large=0.7), dict(wire_dtype="float16", sync_replicas=True),
   "bytes (70 %): try another ps"),
  (shares(0.8), {}, "computing (80 %): try another worker on a machine of its own"),
  (shares(on_ps=0.6), {}, "operations on the ps (60 %): try another ps"),
  (shares(waiting=0.9, input=0.8), {},
   "input (80 %): try to read ahead in input_fn (dataset.prefetch)"),
  (shares(waiting=0.9, blocked=0.8), dict(sync_replicas=True),
   "waiting (80 %): try --sync_replicas=N with N below the number of workers"),
  (shares(waiting=0.9, blocked=0.8), {}, "waiting (80 %)")])
def test_each_bound(one, options, line):
  assert say(one, **options) == "bound by " + line


@pytest.mark.parametrize("options, advice", [
  ({}, "--threads=1"), (dict(config=tf.ConfigProto(allow_soft_placement=True)), "--threads=1"),
  (dict(steps_per_execution=1), "--steps_per_execution=8"),
  (dict(config=tf.ConfigProto(inter_op_parallelism_threads=1)), "--overlap=2 (older gradients)"),
  (dict(overlap="prefetch"), "a larger --batch_size")], ids=str)
def test_few_threads_for_small_messages_on_a_shared_host(options, advice):
  said = bounds.say_bound([shares(waiting=0.6)], Options(**options), 60.0, shares_host=True)
  assert said == "bound by messages (100 %): try " + advice
  said = bounds.say_bound([shares(large=0.7)], Options(**options), 60.0, shares_host=True)
  assert "--threads" not in said


@pytest.mark.parametrize("options", [
  {}, dict(pack_bytes=0), dict(steps_per_execution=8), dict(wire_dtype="float16")])
@pytest.mark.parametrize("one", [shares(waiting=0.6), shares(large=0.7)])
def test_no_advice_that_is_given_already(one, options):
  said = say(one._replace(seconds=1.0), **options)
  for name, value in options.items():
    assert said.endswith("out TF1PS_PACK_BYTES=0") or "--%s=%s" % (name, value) not in said


def test_nothing_of_a_fast_job_or_a_short_one_or_without_a_clear_bound():
  assert say(shares(waiting=0.6), seconds=29.0) == ""
  assert bounds.say_bound([], Options(), 60.0) == ""
  assert say(shares(waiting=0.6, seconds=0.0009)) == ""
  assert say(shares(waiting=0.6, seconds=0.007), steps=8) == ""
  assert say(shares(0.45, 0.2, large=0.3)) == ""


def test_the_mean_of_the_traces_counts():
  found = [shares(waiting=0.9, input=0.9), shares(waiting=0.5, input=0.3)]
  assert bounds.bound_of(found) == ("input", pytest.approx(0.6))


def _hold(number):
  threading.Event().wait(0.05)
  return number


def slow_input(mode, shard):
  x, y = local_job.line_input(mode, shard)
  with tf.control_dependencies([x]):
    delay = tf.data.make_one_shot_iterator(tf.data.Dataset.range(10**6).map(
      lambda n: tf.numpy_function(_hold, [n], tf.int64))).get_next()
  with tf.control_dependencies([delay]):
    return tf.identity(x), y


@pytest.mark.slow
def test_a_job_that_waits_for_its_input(monkeypatch):
  monkeypatch.setattr(bounds, "LEAST_SECONDS", 0.0)
  monkeypatch.setattr(traffic_report, "_FIRST_COST", (0.0, 0.0))
  outcome = local_job.train(slow_input, batch_size=4, steps=30)
  assert ", bound by input (" in outcome.traffic and outcome.traffic.endswith(
    "%): try to read ahead in input_fn (dataset.prefetch)"), outcome.traffic
