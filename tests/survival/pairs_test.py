from __future__ import annotations

import datetime
import os

import pytest
import tensorflow.compat.v1 as tf

from tests import needs
from tests.survival import matrix, matrix_job, matrix_test, pairs

SEED = int(os.environ.get("TF1PS_PAIRS_SEED", "1"))
COUNT = int(os.environ.get("TF1PS_PAIRS_COUNT", "6"))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pair", [
  pytest.param(pair, id=pair.name, marks=[pytest.mark.xfail(
    strict=False, reason=pairs.sometimes_fails(pair))] if pairs.sometimes_fails(pair) else [])
  for pair in pairs.draw(SEED, COUNT)])
def test_a_pair_does_what_it_promises(start, tmp_path, pair):
  pace = matrix_test.PACE
  try:
    job = matrix_job.Job(pair.stages, pace, start, tmp_path)
  except matrix_job.NotPermitted as error:
    needs.skip("namespaces", error)
  seen = None
  try:
    seen = job.run()
    found = matrix_job.problems(pairs.promise(pair, pace), seen)
  except AssertionError as error:  # the faults could not be made
    found = [str(error).partition("\n")[0]]
  finally:
    output = job.output()
    job.close()
  matrix_test.keep(pairs.row(pair, seen, found, pace, tf.VERSION, str(datetime.date.today())),
                   pair.name, "%s\n%s\n%s\n" % (found, seen, output))
  assert not found, "%s\n%s\n%s" % ("; ".join(found), seen, output)


@pytest.mark.any_tensorflow
def test_every_pair_has_a_promise():
  assert len(pairs.ALL) == 9696
  for pair in pairs.PAIRS:
    assert pairs.promise(pair, matrix.QUICK).seconds > 0
    for stage in pair.stages:
      assert all(cell in matrix.CELLS for cell in stage.cells)
  assert len({pair.name for pair in pairs.PAIRS}) == len(pairs.PAIRS) == 4756


@pytest.mark.any_tensorflow
def test_a_draw_has_every_role_and_phase():
  drawn = pairs.draw(1, 300)
  assert len(set(drawn)) == 300 and drawn != pairs.draw(2, 300)
  assert {pair.moment for pair in drawn} == set(pairs.MOMENTS)
  assert pairs.roles_and_phases(drawn) == {(cell.role, cell.phase) for cell in matrix.CELLS}


def test_a_draw_is_the_same_on_every_python():
  assert [pair.name for pair in pairs.draw(1, 2)] == [
    "at_once-sync-chief_saving_cut-evaluator_training_stopped",
    "recovery-async-evaluator_evaluating_stopped-ps_evaluating_killed"]


def promise(moment, first, second):
  return pairs.promise(pairs.Pair(
    moment, matrix.Cell(*first.split("-")), matrix.Cell(*second.split("-"))), matrix.QUICK)


@pytest.mark.any_tensorflow
def test_a_job_that_survives_each_fault_survives_both():
  assert promise("at_once", "ps-training-sync-killed", "worker-training-sync-stopped") == (
    True, 10.0 + 9.0 + 20.0, range(160, 162), matrix.LOST_STEPS, {})


@pytest.mark.any_tensorflow
def test_a_full_disk_costs_a_checkpoint_and_what_is_lost_goes_back_to_the_one_before():
  full, killed = "chief-saving-spare-full", "ps-saving-spare-killed"
  assert promise("recovery", full, killed).lost_steps == matrix.LOST_STEPS + matrix.SAVE_STEPS
  assert promise("recovery", full, "worker-saving-spare-killed").lost_steps == 0
  assert promise("recovery", "worker-saving-spare-full", killed).lost_steps == matrix.LOST_STEPS


@pytest.mark.any_tensorflow
def test_a_job_that_fails_names_one_of_the_victims():
  names = ("/job:ps/task:0", "/job:worker/task:1")
  assert promise("recovery", "ps-training-async-stopped", "worker-training-async-cut") == (
    False, 9.0 + 17.0 + 20.0, range(160, 162), 0, {"worker 0": names, "worker 1": ()})


@pytest.mark.any_tensorflow
def test_a_task_that_is_started_in_a_job_that_fails_has_the_limit_of_a_start():
  assert promise("at_once", "chief-training-async-killed", "worker-training-async-cut")[:2] == (
    False, 31.0 + 17.0 + 20.0)


@pytest.mark.any_tensorflow
def test_a_chief_that_is_started_on_a_full_disk_needs_room():
  killed, full = "chief-training-async-killed", "ps-training-async-full"
  assert not promise("recovery", killed, full).goes_on
  assert promise("recovery", full, killed).goes_on  # it has room again
  assert not promise("at_once", full, killed).goes_on
