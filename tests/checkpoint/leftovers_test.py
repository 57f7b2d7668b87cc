from __future__ import annotations

import random
import re
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.checkpoint import saving_tasks
from tests.training import line_program
from tests.training.job import Job, steps
from tf1ps.checkpoint import checkpoints, leftovers

HEX = "0123456789abcdef" * 2


def test_files_of_unfinished_saves_go_and_all_others_stay(tmp_path):
  line_program.save(tmp_path, 3, w=2.0, b=1.0)
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
  kept = {one.name for one in tmp_path.iterdir()} | {
    "model.ckpt-9.data-00000-of-00001", "graph.pbtxt", "notes_temp", "model.ckpt-5.meta",
    "notes.tmp", "tf1ps-run.json"}
  gone = {"model.ckpt-7.data-00000-of-00001", "checkpoint.tmp" + HEX, "model.ckpt-7.meta.tmp" + HEX,
          "model.ckpt-8.data-00000-of-00001.tempstate123456", "model.ckpt-8.index.tempstate9",
          "model.ckpt-8_temp", "model.ckpt-8_temp_" + HEX}
  for name in kept | gone:
    path = tmp_path / name
    if "_temp" in name:
      path.mkdir()
      (path / ("mine" if "notes" in name else "part-00000-of-00002.data-00000-of-00001")).touch()
    elif not path.exists():
      path.touch()
  assert set(leftovers.remove_leftovers(str(tmp_path))) == gone
  assert {one.name for one in tmp_path.iterdir()} == kept
  assert leftovers.remove_leftovers(str(tmp_path)) == []


def test_a_directory_that_is_not_there_has_none(tmp_path):
  assert leftovers.remove_leftovers(str(tmp_path / "nothing")) == []


COMPLETE = re.compile(
  r"checkpoint|graph\.pbtxt|model\.ckpt-(\d+)\.(index|meta|data-0000\d-of-0000\d)")


@pytest.mark.slow
@pytest.mark.parametrize("sharded", [False, True])
def test_a_kill_at_any_moment_of_a_save_leaves_a_good_latest_checkpoint(start, tmp_path, sharded):
  moments = random.Random(3)
  for _ in range(5):
    task = start("saver", saving_tasks.save_forever, str(tmp_path), sharded)
    task.wait_for("step ")
    threading.Event().wait(moments.uniform(0.0, 0.5))  # the moment of the kill
    task.kill()
    task.wait()
    latest = checkpoints.latest_checkpoint(str(tmp_path))
    assert latest == checkpoints.named_in(str(tmp_path))  # none was passed over
    checkpoints.verify_checkpoint(latest)
    reader = tf.train.NewCheckpointReader(latest)
    for name in ("v0", "v1"):
      assert set(reader.get_tensor(name)) == {float(reader.get_tensor("global_step"))}
    leftovers.remove_leftovers(str(tmp_path))
    for path in tmp_path.iterdir():
      match = COMPLETE.match(path.name)
      assert match and match.end() == len(path.name), path.name
      if match.group(1):
        checkpoints.verify_checkpoint(str(tmp_path / ("model.ckpt-" + match.group(1))))


@pytest.mark.slow
def test_a_ps_that_is_killed_while_it_saves(start, tmp_path):
  moments = random.Random(5)
  job = Job(start, num_workers=1, checkpoint_dir=str(tmp_path), save_steps=1)
  ps, chief = job.trainer_ps(), job.trainer()
  for _ in range(3):
    seen = len(steps(chief))
    harness.wait_until(lambda: len(steps(chief)) > seen + 20, what=chief.output)  # noqa: B023
    threading.Event().wait(moments.uniform(0.0, 0.1))  # the moment of the kill
    ps.kill()
    ps.wait()
    checkpoints.verify_checkpoint(checkpoints.named_in(str(tmp_path)))
    ps = job.trainer_ps()
  seen = len(steps(chief))
  harness.wait_until(lambda: len(steps(chief)) > seen + 5, what=chief.output)
  assert "is passed over" not in chief.output
  chief.signal(15)
  assert chief.wait() == 143
  last = checkpoints.latest_checkpoint(str(tmp_path))
  checkpoints.verify_checkpoint(last)
  assert checkpoints.global_step_of_checkpoint(last) == steps(chief)[-1].number
