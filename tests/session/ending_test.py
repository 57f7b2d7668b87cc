from __future__ import annotations

import contextlib
import re
import time
import types

import pytest

from tests import harness
from tests.training import local_server
from tf1ps.session import ending
from tf1ps.session import membership as membership_lib
from tf1ps.state import heartbeat

LOST_AFTER = 0.8  # seconds; the steady view that a loss needs is as long
PATIENT = pytest.mark.parametrize("part", [30.0], indirect=True)  # where nobody is to be lost
DONE, FAILED, TRAINING = (
  heartbeat.MEMBER_DONE,
  heartbeat.MEMBER_FAILED,
  heartbeat.MEMBER_TRAINING,
)


@pytest.fixture
def part(request):
  """The chief's part in a run of three workers."""
  name = request.node.name.split("[")[0].replace("_", "-")
  of = local_server.record(name, getattr(request, "param", LOST_AFTER))
  part = membership_lib.Membership(of)
  part.run.begin_initialisation()
  part.run.mark_initialised([])
  yield part
  part.stop()


@pytest.fixture
def workers(part):
  return [local_server.Worker(part.record, 1), local_server.Worker(part.record, 2)]


@pytest.fixture
def clock(monkeypatch):
  """The clock of the wait, which moves where the wait sleeps; `seconds` is its time."""
  clock = types.SimpleNamespace(seconds=0.0)

  def sleep(seconds):
    clock.seconds += seconds

  monkeypatch.setattr(ending, "time", types.SimpleNamespace(
    monotonic=lambda: clock.seconds, sleep=sleep))
  return clock


def wait(part, end_timeout=30.0, each_round=lambda: None):
  part.start()
  return ending.wait_for_workers(part, end_timeout, each_round)


@PATIENT
def test_all_have_done_their_part(part, workers):
  for worker in workers:
    worker.say(run=part.run_id, state=DONE)
  assert wait(part) == []


@PATIENT
def test_one_that_only_serves_is_not_waited_for(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  workers[1].say(state=heartbeat.MEMBER_SERVING)
  assert wait(part) == []


def test_one_that_failed_is_named_with_its_reason(part, workers, caplog):
  workers[0].say(run=part.run_id, state=DONE)
  began = time.monotonic()
  workers[1].say(run=part.run_id, state=FAILED, reason="ValueError: mine", process="4710")
  assert wait(part) == ["/job:worker/task:2 failed: ValueError: mine"]
  assert time.monotonic() - began > LOST_AFTER / 2  # it may be started again
  assert caplog.text.count("task:2 failed: ValueError: mine. The chief waits 0.8 s") == 1


@PATIENT
def test_one_of_the_same_process_cannot_be_started_again(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  workers[1].say(run=part.run_id, state=FAILED, reason="ValueError: mine")
  assert wait(part) == ["/job:worker/task:2 failed: ValueError: mine"]


@PATIENT
@pytest.mark.parametrize("comes", [dict(state=DONE), dict(state=FAILED, reason="KeyError: later")])
def test_one_that_failed_and_was_started_again(part, workers, comes):
  workers[0].say(run=part.run_id, state=DONE)
  workers[1].say(run=part.run_id, state=FAILED, reason="ValueError: mine", process="4710")
  rounds = []

  def each_round():
    rounds.append(1)
    if len(rounds) == 3:
      workers[1].say(run="", state=heartbeat.MEMBER_STARTING, process="4711", reason="")
    if len(rounds) == 6:
      workers[1].say(run=part.run_id, **comes)
    if len(rounds) == 9:
      workers[1].say(state=DONE)
    part.heartbeat.beat()

  assert wait(part, each_round=each_round) == []
  assert len(rounds) == (6 if comes["state"] == DONE else 9)


def test_one_that_failed_before_it_joined(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  workers[1].say(state=FAILED, reason="GraphMismatchError")
  assert wait(part) == ["/job:worker/task:2 failed: GraphMismatchError"]


def test_one_that_falls_silent_is_lost(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  began = time.monotonic()  # before its last sign of life
  workers[1].say(run=part.run_id, state=TRAINING, global_step=77)
  (problem,) = wait(part)
  assert re.match(r"/job:worker/task:2 is lost: silent for \d+ s, last seen at global step 77$",
                  problem)
  assert time.monotonic() - began > LOST_AFTER


def test_one_that_never_comes(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  began = time.monotonic()
  assert wait(part) == ["/job:worker/task:2 never joined"]
  assert time.monotonic() - began > LOST_AFTER


def test_one_that_never_comes_and_need_not(part, workers, caplog):
  workers[0].say(run=part.run_id, state=DONE)
  part.start()
  assert ending.wait_for_workers(part, 30.0, lambda: None, expects_all=False) == []
  assert "task:2 never joined, and the run ends without it" in caplog.text


def test_what_an_earlier_runs_worker_left_says_nothing(part, workers):
  workers[0].say(run=part.run_id, state=DONE)
  workers[1].say(run="an earlier one", state=DONE)
  assert wait(part) == ["/job:worker/task:2 never joined"]


@contextlib.contextmanager
def chiefs(directory, name):
  """Yields what begins the chief's next process in a directory, on a ps that has no records."""
  parts = []

  def begin():
    of = local_server.record("%s-%d" % (name, len(parts)), LOST_AFTER)
    part = membership_lib.Membership(of, str(directory))
    parts.append(part)
    part.start()
    part.run.adopt([])
    part.run.begin_initialisation()
    part.run.mark_initialised([])
    return part

  try:
    yield begin
  finally:
    for part in parts:
      part.stop()


@pytest.mark.parametrize("has_left, has_failed", [(True, False), (False, False), (True, True)])
def test_one_that_did_its_part_before_the_chief_and_the_ps_were_lost(
    tmp_path, has_left, has_failed):
  with chiefs(tmp_path, "lost-%s-%s" % (has_left, has_failed)) as begin:
    first = begin()
    if has_left:
      local_server.Worker(first.record, 1).say(run=first.run_id, state=DONE, process="4710")
      harness.wait_until(lambda: "4710" in first.heartbeat.get("heard"))
    if has_failed:
      first.report(FAILED, "signal 15")
    first.stop()
    again = begin()
    if not has_left:
      local_server.Worker(again.record, 1).say(run=first.run_id, state=DONE)
    assert again.run_id != first.run_id
    assert wait(again) == ["/job:worker/task:2 never joined"]
    again.release()
    assert wait(begin()) == ["/job:worker/task:%d never joined" % index for index in (1, 2)]


def test_one_that_did_its_part_and_has_one_again_in_the_next_run(tmp_path):
  def say(part, state, process):
    local_server.Worker(part.record, 1).say(run=part.run_id, state=state, process=process)
    harness.wait_until(lambda: process in [m.process for m in part.heartbeat.members()])
    part.heartbeat.beat()

  with chiefs(tmp_path, "again") as begin:
    first = begin()
    say(first, DONE, "4710")
    first.stop()
    second = begin()
    say(second, TRAINING, "4711")
    second.stop()
    assert wait(begin()) == ["/job:worker/task:%d never joined" % index for index in (1, 2)]


@PATIENT
def test_one_that_lives_and_makes_no_step_is_given_up(part, workers, clock):
  workers[0].say(run=part.run_id, state=DONE)

  def each_round():
    workers[1].say(run=part.run_id, state=TRAINING, step=5)
    part.heartbeat.beat()

  assert wait(part, 7.0, each_round) == [
    "/job:worker/task:2 has made no step for 7 s (end_timeout)"]
  assert 7.0 < clock.seconds < 7.0 + 3 * ending.TIMING.poll_interval


@PATIENT
def test_a_step_of_a_missing_one_begins_the_wait_anew(part, workers, clock):
  workers[0].say(run=part.run_id, state=DONE)

  def each_round():
    if clock.seconds < 2.5:  # more than twice the limit
      workers[1].say(run=part.run_id, state=TRAINING, step=int(clock.seconds * 10))
    else:
      workers[1].say(state=DONE)
    part.heartbeat.beat()

  assert wait(part, 1.2, each_round) == []


@PATIENT
def test_what_a_round_raises_ends_the_wait(part, workers):
  def each_round():
    raise SystemExit(143)

  with pytest.raises(SystemExit):
    wait(part, each_round=each_round)
