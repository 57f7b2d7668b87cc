from __future__ import annotations

import os
import re
import threading

import pytest

from tests import harness
from tests.program.evaluator_test import LIMIT, LINE, Following, save
from tests.training import line_program
from tf1ps.checkpoint import checkpoints
from tf1ps.program import (
  best_checkpoint,
  evaluation,
  evaluator,
  evaluator_memory,
  metric_goals,
  prediction,
)
from tf1ps.state import run, run_status


@pytest.fixture
def status(tmp_path):
  """The status file of a run "a" that lives."""
  file = run.RunFile(str(tmp_path))
  file.write("a", run_status.RUN_RUNNING, 0)
  return file


def interrupt(following):
  following.interrupt.set()
  following.end()


def loss_of(directory, step, error, keep=None):
  """Saves a checkpoint whose loss is the square of `error`."""
  return line_program.save(directory, step, w=2.0, b=1.0 + error, keep=keep)


@pytest.mark.slow
def test_a_restarted_evaluator_evaluates_the_newest_that_it_has_missed(tmp_path, status):
  first = Following(tmp_path)
  for step in (1, 3):
    save(tmp_path, step)
    first.wait_for([1, 3][:1 + (step == 3)])
  interrupt(first)
  for step in (4, 5):
    save(tmp_path, step)
  second = Following(tmp_path)
  second.wait_for([5])
  status.write("a", run_status.RUN_ENDED, 5)
  outcome = second.end()
  assert (outcome.evaluations, outcome.last.global_step, outcome.code) == (1, 5, 0)
  third = Following(tmp_path, start_timeout=0.1).end()
  assert third == outcome._replace(evaluations=0, reason="the run has ended at step 5")


def test_a_checkpoint_that_is_saved_again_is_evaluated_again(tmp_path, status):
  following = Following(tmp_path)
  loss_of(tmp_path, 3, 1.0)
  following.wait_for([3])
  loss_of(tmp_path, 3, 2.0)
  following.wait_for([3, 3])
  status.write("a", run_status.RUN_ENDED, 3)
  assert following.end().last.metrics["loss"] == 4.0


def test_a_memory_that_cannot_be_read_is_none(tmp_path):
  (tmp_path / evaluator_memory.NAME).write_text("{")
  assert evaluator_memory.read_memory(str(tmp_path)) is None
  (tmp_path / evaluator_memory.NAME).write_text('{"other": 3}')
  assert evaluator_memory.read_memory(str(tmp_path)) is None


def test_one_evaluation_is_made_though_it_was_made_before(tmp_path):
  save(tmp_path, 1)
  for _ in range(2):
    outcome = evaluator.follow_checkpoints(LINE, str(tmp_path), 60, 60, 4, checkpoint="latest")
    assert outcome.evaluations == 1


def kept(directory):
  path = checkpoints.named_in(str(directory / "best"))
  checkpoints.verify_checkpoint(path)
  own = os.path.basename(path) + "."
  others = [name for name in os.listdir(str(directory / "best"))
            if name not in ("checkpoint", "saved_model") and not name.startswith(own)]
  assert not others
  return checkpoints.global_step_of_checkpoint(path)


@pytest.mark.slow
def test_the_best_checkpoint_is_kept_also_over_a_restart(tmp_path, status):
  goal = metric_goals.parse_metric_goal("loss")
  first = Following(tmp_path, keep_best=goal)
  for number, (step, error) in enumerate([(1, 3.0), (2, 1.0), (3, 2.0)]):
    loss_of(tmp_path, step, error, keep=1)
    first.wait_for([1, 2, 3][:number + 1])
  interrupt(first)
  assert kept(tmp_path) == 2
  assert not (tmp_path / "model.ckpt-2.index").exists()
  (tmp_path / "best" / "model.ckpt-7.index").write_text("left by a kill")
  second = Following(tmp_path, keep_best=goal)
  loss_of(tmp_path, 4, 1.5, keep=1)
  second.wait_for([4])
  loss_of(tmp_path, 5, 0.5, keep=1)
  second.wait_for([4, 5])
  status.write("a", run_status.RUN_ENDED, 5)
  reason = second.end().reason
  assert kept(tmp_path) == 5
  assert re.fullmatch(
    r"the run has ended at step 5; the best: .*test loss 0\.2500 at step 5 \(.*\) in "
    r"DIR/best/model\.ckpt-5, exported to DIR/best/saved_model", reason.replace(
      str(tmp_path), "DIR"))
  assert (tmp_path / "best" / "saved_model" / "saved_model.pb").exists()
  output = str(tmp_path / "y.csv")
  best = str(tmp_path / "best" / "model.ckpt-5")
  for directory, checkpoint in ((tmp_path, best), (tmp_path / "best", None)):
    done = prediction.predict_examples(LINE, str(directory), output, 4, checkpoint=checkpoint)
    assert done.checkpoint == best


@pytest.mark.parametrize("lost", [
  ["eval/tf1ps-evaluator.json"], ["best/checkpoint"],
  ["eval/tf1ps-evaluator.json", "best/checkpoint"]])
def test_the_best_checkpoint_outlives_the_files_that_name_it(tmp_path, status, lost):
  goal = metric_goals.parse_metric_goal("loss")
  for step, error in ((1, 3.0), (2, 1.0), (3, 2.0)):
    loss_of(tmp_path, step, error, keep=1)
    evaluator.follow_checkpoints(
      LINE, str(tmp_path), 60, 60, 4, checkpoint="latest", keep_best=goal)
  for name in lost:
    (tmp_path / name).unlink()
  (tmp_path / "best" / "model.ckpt-7.index").write_text("left by a kill")
  found = evaluator.follow_checkpoints(
    LINE, str(tmp_path), 60, 60, 4, checkpoint="latest", keep_best=goal)
  assert kept(tmp_path) == 2 and "test loss 1.0000 at step 2" in found.reason


def test_the_best_checkpoint_is_found_among_those_that_nothing_knows(tmp_path, status):
  goal, nan = metric_goals.parse_metric_goal("loss"), float("nan")
  folder = tmp_path / "best"
  folder.mkdir()
  for step, error in ((10, nan), (8, 1.0), (9, 2.0)):  # the first by name cannot be compared
    loss_of(folder, step, error)
  interrupted = best_checkpoint.BestCheckpoint(str(tmp_path), goal, None)
  interrupted.find(lambda path: None)
  interrupted.judge("model.ckpt-11", str(folder / "model.ckpt-11"), None)  # as the end does
  assert len(list(folder.glob("*.index"))) == 3, "not all were looked at"
  best = best_checkpoint.BestCheckpoint(str(tmp_path), goal, None)
  best.find(lambda path: evaluation.evaluate_checkpoint(LINE, path, 4))
  assert best.value == 1.0 and [path.name for path in folder.glob("*.index")] == [
    "model.ckpt-8.index"]


@pytest.mark.parametrize("has_links", [True, False])
def test_a_checkpoint_that_is_deleted_while_it_is_evaluated(
    tmp_path, status, monkeypatch, caplog, has_links):
  gate, entered = threading.Event(), threading.Event()

  def input_fn(mode, shard):
    if mode == "eval" and os.path.exists(str(tmp_path / "model.ckpt-1.index")):
      entered.set()
      gate.wait(LIMIT)
    return line_program.input_fn(mode, shard)

  def no_link(*paths):
    raise OSError("no hard links here")

  if not has_links:
    monkeypatch.setattr(os, "link", no_link)
  following = Following(tmp_path, program=LINE._replace(input_fn=input_fn),
                        keep_best=metric_goals.parse_metric_goal("loss"))
  loss_of(tmp_path, 1, 0.0)
  assert entered.wait(LIMIT)
  loss_of(tmp_path, 2, 1.0, keep=1)
  gate.set()
  following.wait_for([1, 2] if has_links else [2])
  status.write("a", run_status.RUN_ENDED, 2)
  following.end()
  assert kept(tmp_path) == (1 if has_links else 2)


@pytest.mark.slow
def test_a_run_that_does_not_improve_is_asked_to_end(tmp_path, status, caplog):
  stopping = metric_goals.parse_metric_goal("loss:2")
  following = Following(tmp_path, keep_best=stopping)
  stop = run.StopFile(str(tmp_path))
  for number, (step, error) in enumerate([(1, 2.0), (2, 3.0), (3, 1.0), (4, 1.0)]):
    loss_of(tmp_path, step, error)
    following.wait_for([1, 2, 3, 4][:number + 1])
  interrupt(following)
  assert stop.read("a") == ""
  following = Following(tmp_path, keep_best=stopping)  # it goes on to count
  loss_of(tmp_path, 5, 5.0)
  following.wait_for([5])
  reason = "early stopping: loss has not improved for 2 evaluations"
  harness.wait_until(lambda: stop.read("a") == reason)
  assert stop.read("b") == "" and stop.read("") == ""
  loss_of(tmp_path, 6, 5.0)
  following.wait_for([5, 6])
  status.write("a", run_status.RUN_ENDED, 6)
  outcome = following.end()
  assert outcome.reason.startswith(reason + "; the run has ended at step 6; the best: ")
  assert outcome.code == 0
  assert len([line for line in caplog.messages if line.startswith("early stopping")]) == 1


def test_a_new_run_begins_a_new_count():
  patience = evaluator_memory.Patience(metric_goals.parse_metric_goal("loss:1"), None)

  def count(run_id, step, loss):
    return bool(patience.count(run_id, evaluation.Evaluation({"loss": loss}, 1, step, 0.0)))

  assert not count("a", 5, 2.0)
  assert not count("a", 4, 9.0)  # an older checkpoint, evaluated later
  assert count("a", 6, 2.0)
  assert not count("b", 6, 7.0)
  assert count("b", 7, float("nan"))


def test_an_improvement_may_be_too_small_for_the_patience():
  patience = evaluator_memory.Patience(metric_goals.parse_metric_goal("loss:2:0.5"), None)
  reasons = [patience.count("a", evaluation.Evaluation({"loss": loss}, 1, step, 0.0))
             for step, loss in enumerate([9.0, 8.75, 8.0, 7.75, 7.5])]
  assert reasons == ["", "", "", "",
                     "early stopping: loss has not improved by more than 0.5 for 2 evaluations"]


def test_the_end_exports_the_best_checkpoint_once_more_and_fails_by_nothing(
    tmp_path, status, caplog):
  def model_fn(features, labels, mode):
    if mode == "predict":
      raise KeyError("no predictions here")
    return line_program.model_fn(features, labels, mode)

  goal = metric_goals.parse_metric_goal("loss")
  for step, program in enumerate((LINE, LINE, LINE._replace(model_fn=model_fn)), 1):
    status.write("run %d" % step, run_status.RUN_RUNNING, 0)
    following = Following(tmp_path, program=program, keep_best=goal)
    loss_of(tmp_path, step, 4.0 - step)
    following.wait_for([step])
    status.write("run %d" % step, run_status.RUN_ENDED, step)
    outcome = following.end()
    exported = tmp_path / "best" / "saved_model"
    assert outcome.code == 0 and kept(tmp_path) == step
    assert outcome.reason.endswith("exported to %s" % exported) == (step < 3)
    assert exported.exists() == (step < 3)  # never of another checkpoint
  assert "the best checkpoint is not exported: KeyError: 'no predictions here'" in caplog.text


@pytest.mark.parametrize("goal", ["acuracy", "acuracy:3"])
def test_a_metric_that_the_program_lacks_is_refused_at_once(tmp_path, goal):
  with pytest.raises(evaluation.EvaluationError, match=(
      "--keep_best: the program has no metric 'acuracy'. It has bias, loss, worst")):
    evaluator.follow_checkpoints(
      LINE, str(tmp_path), 60, 60, 4, keep_best=metric_goals.parse_metric_goal(goal))


def test_a_damaged_last_checkpoint_is_named_and_the_one_before_counts(tmp_path, status, caplog):
  save(tmp_path, 1)
  with open(save(tmp_path, 2) + ".data-00000-of-00001", "wb"):
    pass
  following = Following(tmp_path)
  harness.wait_until(lambda: "It is not evaluated" in caplog.text)
  status.write("a", run_status.RUN_ENDED, 2)
  outcome = following.end()
  assert (outcome.evaluations, outcome.last.global_step, outcome.code) == (1, 1, 0)
  assert "model.ckpt-2 is damaged in " in caplog.text
