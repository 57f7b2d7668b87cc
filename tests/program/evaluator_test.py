from __future__ import annotations

import logging
import os
import re
import threading
import time

import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program
from tf1ps.checkpoint import checkpoints
from tf1ps.program import evaluator
from tf1ps.program.contract import Program
from tf1ps.state import run, run_status

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)
LIMIT = 60  # seconds; a test that needs them has failed


class Following:
  """`follow` in a thread, so that a test can change the directory meanwhile."""

  def __init__(self, directory, heartbeat_timeout=LIMIT, start_timeout=LIMIT, program=LINE,
               **more):
    self.evaluated = []  # the global steps, in order
    self.interrupt, self._looked = threading.Event(), threading.Event()
    self.outcome = self.error = None
    self._thread = threading.Thread(target=self._run, daemon=True, args=(
        program, str(directory), heartbeat_timeout, start_timeout, more))
    self._thread.start()
    assert self._looked.wait(LIMIT)  # it knows what was there before

  def _is_interrupted(self):
    self._looked.set()
    return self.interrupt.is_set()

  def _run(self, program, directory, heartbeat_timeout, start_timeout, more):
    handler = logging.Handler()
    handler.emit = self._record
    log = logging.getLogger("tf1ps")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
      self.outcome = evaluator.follow_checkpoints(
        program, directory, heartbeat_timeout, start_timeout, 4,
        interrupted=self._is_interrupted, look_every=0.02, **more)
    except Exception as error:
      self.error = error
    finally:
      log.removeHandler(handler)

  def _record(self, record):
    message = record.getMessage()
    if " at step " in message:
      self.evaluated.append(int(message.split(" at step ")[1].split()[0]))

  def wait_for(self, steps):
    until = time.monotonic() + LIMIT
    while self.evaluated != steps:
      assert time.monotonic() < until and self._thread.is_alive(), (self.evaluated, self.error)
      self._thread.join(0.01)

  def end(self):
    self._thread.join(LIMIT)
    assert not self._thread.is_alive()
    if self.error is not None:
      raise self.error
    return self.outcome


def save(directory, step, keep=None):
  return line_program.save(directory, step, w=2., b=1. + step, keep=keep)  # the bias is the step


def losses(directory):
  """What the summaries say: [(step, loss)]."""
  found = []
  for name in sorted(os.listdir(str(directory / "eval"))):
    if ".tfevents." not in name:
      continue
    for event in tf.train.summary_iterator(str(directory / "eval" / name)):
      found += [(event.step, value.simple_value) for value in event.summary.value
                if value.tag == "loss"]
  return found


def test_a_run_is_followed_to_its_end(tmp_path):
  following = Following(tmp_path / "later")
  status = run.RunFile(str(tmp_path / "later"))
  status.write("a", run_status.RUN_RUNNING, 0)
  save(tmp_path / "later", 1)
  following.wait_for([1])
  save(tmp_path / "later", 3)
  following.wait_for([1, 3])
  save(tmp_path / "later", 4)
  status.write("a", run_status.RUN_ENDED, 4)
  outcome = following.end()
  assert following.evaluated == [1, 3, 4]
  assert outcome == evaluator.EvaluatorOutcome(3, outcome.last, "the run has ended at step 4", 0)
  assert outcome.metrics == outcome.last.metrics == {"bias": 4., "worst": 4., "loss": 16.}
  assert losses(tmp_path / "later") == [(1, 1.), (3, 9.), (4, 16.)]


def test_of_several_new_ones_the_newest_alone_is_evaluated(tmp_path):
  for step in (1, 2, 3):
    save(tmp_path, step)
  entered, gate = threading.Event(), threading.Event()

  def input_fn(mode, shard):
    entered.set()
    gate.wait(LIMIT)
    return line_program.input_fn(mode, shard)

  status = run.RunFile(str(tmp_path))
  status.write("a", run_status.RUN_RUNNING, 0)
  following = Following(tmp_path, program=LINE._replace(input_fn=input_fn))
  assert entered.wait(LIMIT)
  for step in (4, 5, 6):
    save(tmp_path, step)
  gate.set()
  following.wait_for([3, 6])
  save(tmp_path, 7)
  following.wait_for([3, 6, 7])
  status.write("a", run_status.RUN_ENDED, 7)
  outcome = following.end()
  assert outcome.evaluations == 3 and outcome.last.global_step == 7
  assert outcome.reason == "the run has ended at step 7; 2 checkpoints left out"
  assert losses(tmp_path) == [(3, 9.), (6, 36.), (7, 49.)]


def test_a_run_that_failed(tmp_path):
  following = Following(tmp_path)
  status = run.RunFile(str(tmp_path))
  status.write("a", run_status.RUN_RUNNING, 0)
  save(tmp_path, 2)
  status.write("a", run_status.RUN_FAILED, 2)
  outcome = following.end()
  assert (outcome.evaluations, outcome.reason, outcome.code) == (
      1, "the run has failed at step 2", 1)


def test_a_run_whose_chief_failed_may_go_on(tmp_path, monkeypatch):
  status = run.RunFile(str(tmp_path))

  def happens(seconds):
    if seconds in (20, 70):
      status.write("a", run_status.RUN_FAILED, seconds, "ended by signal 15", may_resume=True)
    elif seconds in (10, 40):
      status.write("a", run_status.RUN_RUNNING, seconds)

  save(tmp_path, 1)
  outcome = follow_by_the_clock(tmp_path, monkeypatch, happens)
  assert (outcome.reason, outcome.code) == (
    "the run has failed at step 70: ended by signal 15", 1)


def test_a_run_that_ended_before_is_evaluated_and_waited_after(tmp_path):
  save(tmp_path, 1)
  save(tmp_path, 2)
  run.RunFile(str(tmp_path)).write("old", run_status.RUN_ENDED, 2)
  began = time.monotonic()
  outcome = Following(tmp_path, start_timeout=0.5).end()
  assert time.monotonic() - began >= 0.5
  assert (outcome.evaluations, outcome.reason, outcome.code) == (
      1, "the run has ended at step 2", 0)
  assert outcome.last.global_step == 2


def test_an_old_run_that_ended_does_not_end_the_following_of_a_new_one(tmp_path):
  save(tmp_path, 1)
  status = run.RunFile(str(tmp_path))
  status.write("old", run_status.RUN_ENDED, 1)
  following = Following(tmp_path)
  following.wait_for([1])
  status.write("new", run_status.RUN_RUNNING, 1)
  save(tmp_path, 2)
  following.wait_for([1, 2])
  status.write("new", run_status.RUN_ENDED, 2)
  assert following.end().code == 0


@pytest.mark.parametrize("state", [None, run_status.RUN_RUNNING])
def test_no_run_appears(tmp_path, state):
  if state:
    run.RunFile(str(tmp_path)).write("killed", state, 1)
  outcome = Following(tmp_path, start_timeout=0.3).end()
  assert outcome.code == 1 and outcome.last is None
  assert outcome.reason.startswith("the run is lost: no" if state else "no run appeared")


def follow_by_the_clock(directory, monkeypatch, happens):
  """Follows with a clock that goes on by 5 seconds whenever the evaluator asks for interruptions.

  `happens` is called with the seconds since the start each time.
  """
  now = [0.]

  def is_interrupted():
    now[0] += 5
    happens(now[0])
    return False

  monkeypatch.setattr(evaluator.time, "monotonic", lambda: now[0])
  return evaluator.follow_checkpoints(
    LINE, str(directory), heartbeat_timeout=30, start_timeout=60, batch_size=4,
    interrupted=is_interrupted
  )


def test_a_run_whose_file_stands_still_is_lost_whatever_its_clock_says(tmp_path, monkeypatch):
  def happens(seconds):
    if seconds == 50:
      save(tmp_path, 1)
      run.RunFile(str(tmp_path)).write("a", run_status.RUN_RUNNING, 1)

  monkeypatch.setattr(run.time, "time", lambda: 1e12)
  outcome = follow_by_the_clock(tmp_path, monkeypatch, happens)
  assert re.match(r"the run is lost: no sign of life for 3\d s$", outcome.reason)
  assert (outcome.evaluations, outcome.code) == (1, 1)


def test_a_run_whose_file_changes_is_not_lost(tmp_path, monkeypatch):
  def happens(seconds):
    if seconds % 25 == 0:
      run.RunFile(str(tmp_path)).write(
        "a", run_status.RUN_RUNNING if seconds < 300 else run_status.RUN_ENDED, seconds
      )

  save(tmp_path, 1)
  outcome = follow_by_the_clock(tmp_path, monkeypatch, happens)
  assert (outcome.reason, outcome.code) == ("the run has ended at step 300", 0)


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_skipped(tmp_path):
  def model_fn(features, labels, mode):
    if "model.ckpt-1.index" in os.listdir(str(tmp_path)):
      save(tmp_path, 2, keep=1)
    return line_program.model_fn(features, labels, mode)

  save(tmp_path, 1)
  following = Following(tmp_path, program=LINE._replace(model_fn=model_fn))
  following.wait_for([2])
  run.RunFile(str(tmp_path)).write("a", run_status.RUN_ENDED, 2)
  assert following.end().evaluations == 1


def test_a_checkpoint_that_does_not_fit_is_an_error(tmp_path):
  def model_fn(features, labels, mode):
    tf.get_variable("more", [2])
    return line_program.model_fn(features, labels, mode)

  save(tmp_path, 1)
  with pytest.raises(checkpoints.CheckpointError, match="lacks the model's variable 'more'"):
    Following(tmp_path, program=LINE._replace(model_fn=model_fn)).end()


def test_an_ended_run_without_a_checkpoint(tmp_path):
  following = Following(tmp_path)
  run.RunFile(str(tmp_path)).write("a", run_status.RUN_ENDED, 7)
  outcome = following.end()
  assert (outcome.reason, outcome.code) == (
      "the run has ended at step 7, but %s has no checkpoint" % tmp_path, 1)


def test_a_damaged_state_file_at_the_end_is_refused(tmp_path):
  following = Following(tmp_path)
  save(tmp_path, 1)
  following.wait_for([1])
  (tmp_path / "checkpoint").unlink()
  run.RunFile(str(tmp_path)).write("a", run_status.RUN_ENDED, 7)
  with pytest.raises(checkpoints.CheckpointError, match="has checkpoints, but no state file"):
    following.end()


def test_it_can_be_interrupted(tmp_path):
  following = Following(tmp_path)
  following.interrupt.set()
  outcome = following.end()
  assert (outcome.reason, outcome.code) == ("interrupted", 1)


def test_one_evaluation_is_of_the_newest(tmp_path):
  def once():
    return evaluator.follow_checkpoints(LINE, str(tmp_path), LIMIT, LIMIT, 4, checkpoint="latest")

  assert once()[2:] == ("one evaluation was asked for, but %s has no checkpoint" % tmp_path, 1)
  save(tmp_path, 1)
  save(tmp_path, 2)
  outcome = once()
  assert (outcome.evaluations, outcome.last.global_step, outcome.code) == (1, 2, 0)
  assert losses(tmp_path) == [(2, 4.)]
  outcome = evaluator.follow_checkpoints(
    LINE, str(tmp_path), LIMIT, LIMIT, 4, checkpoint=str(tmp_path / "model.ckpt-1"))
  assert (outcome.evaluations, outcome.last.global_step, outcome.code) == (1, 1, 0)


def test_an_evaluation_whose_summaries_cannot_be_written_counts(tmp_path, caplog):
  save(tmp_path, 4)
  (tmp_path / evaluator.SUMMARIES).write_text("a file has the name of the folder")
  outcome = evaluator.follow_checkpoints(LINE, str(tmp_path), LIMIT, LIMIT, 4, checkpoint="latest")
  assert (outcome.code, outcome.last.global_step) == (0, 4)
  if not tf.__version__.startswith("1."):  # whose writer reports no error
    assert "summaries in %s are lost" % (tmp_path / evaluator.SUMMARIES) in caplog.text


@pytest.mark.parametrize("name", ["heartbeat_timeout", "start_timeout", "look_every"])
def test_times_must_be_positive(tmp_path, name):
  times = dict(heartbeat_timeout=1, start_timeout=1, look_every=1)
  times[name] = 0
  with pytest.raises(ValueError, match=f"{name} must be above 0 seconds, got 0"):
    evaluator.follow_checkpoints(LINE, str(tmp_path), batch_size=4, **times)
