from __future__ import annotations

import os
import re
import shutil
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests.checkpoint.damages import DAMAGES, PART, cut, flip, latest_intact
from tf1ps.checkpoint import checkpoints


def save(directory, steps=(1, 2, 3), sharded=False, keep=5):
  """Saves checkpoints of a = [step] * 100 and b = [step, 0, 0]; returns the last one's path."""
  with tf.Graph().as_default():
    a = tf.get_variable("a", [100], initializer=tf.zeros_initializer(), use_resource=True)
    b = tf.get_variable("b", [3], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    with tf.device("/cpu:1" if sharded else None):
      c = tf.get_variable("c", [4], initializer=tf.ones_initializer(), use_resource=True)
    value = tf.placeholder(tf.int64, [])
    assign = [a.assign(tf.fill([100], tf.cast(value, tf.float32))), step.assign(value),
              b.initializer, c.initializer]
    saver = tf.train.Saver(sharded=sharded, max_to_keep=keep)
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
      for number in steps:
        session.run(assign, {value: number})
        path = saver.save(session, os.path.join(str(directory), "model.ckpt"), global_step=number)
  return path


def refused(function, *arguments, **keywords):
  with pytest.raises(checkpoints.CheckpointError) as error:
    function(*arguments, **keywords)
  assert not isinstance(error.value, tf.errors.OutOfRangeError)
  return str(error.value)


def test_latest(tmp_path):
  assert checkpoints.latest_checkpoint(str(tmp_path / "nothing")) is None
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None
  path = save(tmp_path)
  assert checkpoints.latest_checkpoint(str(tmp_path)) == latest_intact(tmp_path) == path
  assert path == str(tmp_path / "model.ckpt-3")


def test_a_missing_state_file_is_refused_and_the_advice_helps(tmp_path):
  save(tmp_path, (9, 10, 11))
  cut(100)(str(tmp_path / ("model.ckpt-11" + PART)))
  (tmp_path / "checkpoint").unlink()
  error = refused(checkpoints.latest_checkpoint, str(tmp_path))
  assert error == (
    f"{tmp_path} has checkpoints, but no state file 'checkpoint'. There is model.ckpt-11, "
    "model.ckpt-10, model.ckpt-9. The newest readable one is model.ckpt-10. To use it, put only "
    f'the line model_checkpoint_path: "model.ckpt-10" into {tmp_path}/checkpoint. To start from '
    "step 0, use another directory")
  line = error.split("put only the line ")[1].split(" into ")[0]
  (tmp_path / "checkpoint").write_text(line + "\n")
  assert latest_intact(tmp_path) == str(tmp_path / "model.ckpt-10")


@pytest.mark.parametrize("content", [b"", b"hello {", b"\xff\xfe\x00"])
def test_in_place_of_a_damaged_state_file_the_newest_is_used(tmp_path, content, caplog):
  path = save(tmp_path, (9, 10, 11))
  (tmp_path / "checkpoint").write_bytes(content)
  assert checkpoints.latest_checkpoint(str(tmp_path)) == path
  assert checkpoints.listed_checkpoints(str(tmp_path)) == []
  cut(100)(path + PART)
  assert latest_intact(tmp_path) == str(tmp_path / "model.ckpt-10")
  texts = warnings(caplog)
  assert texts[0] == (f"the state file {tmp_path}/checkpoint names no checkpoint: it is empty or "
                      f"damaged. The newest checkpoint of the directory is used, {path}")
  assert len(texts) == 2 and "model.ckpt-11 is damaged in " in texts[1]


def warnings(caplog):
  return [record.getMessage() for record in caplog.records
          if record.levelname == "WARNING" and record.name == "tf1ps"]


def test_a_checkpoint_without_index_is_passed_over(tmp_path, caplog):
  save(tmp_path, (1, 2))
  os.remove(str(tmp_path / "model.ckpt-2.index"))
  for _ in range(2):
    assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")
  assert warnings(caplog) == [
    f"checkpoint {tmp_path}/model.ckpt-2 is not complete: {tmp_path}/model.ckpt-2.index is missing."
    " It is passed over, for the checkpoint before it"]
  assert checkpoints.listed_checkpoints(str(tmp_path)) == [str(tmp_path / "model.ckpt-1")]


@pytest.mark.parametrize("content, problem", [
  ('model_checkpoint_path: "model.ckpt-7"\n', "no checkpoint in .* can be used: .*ckpt-7.index"),
  ("", "the state file .* names no checkpoint: it is empty or damaged. There is no other")])
def test_a_state_file_alone_is_refused(tmp_path, content, problem):
  (tmp_path / "checkpoint").write_text(content)
  error = refused(checkpoints.latest_checkpoint, str(tmp_path))
  assert re.match(problem, error)
  assert re.search("To start from step 0, delete (this|the) file", error)


@pytest.mark.parametrize("ending, change, expected", DAMAGES)
def test_every_damage_is_found_and_named(tmp_path, ending, change, expected, caplog):
  path = save(tmp_path)
  change(path + ending)
  error = refused(checkpoints.verify_checkpoint, path)
  assert re.search(expected, error)
  assert latest_intact(tmp_path) == str(tmp_path / "model.ckpt-2")
  assert warnings(caplog) == [error + ". It is passed over, for the checkpoint before it"]


def test_when_nothing_reads_well(tmp_path):
  path = save(tmp_path, (1, 2))
  os.remove(path + PART)
  cut(30)(str(tmp_path / ("model.ckpt-1" + PART)))
  assert re.match(
    r"no checkpoint in .* can be used: .*ckpt-2 is not complete: .* is missing; .*ckpt-1 is damaged"
    r" in .*\. To start from step 0, use another directory$", refused(latest_intact, tmp_path))


def test_only_older_checkpoints_of_the_same_name_take_the_place_of_the_latest(tmp_path):
  save(tmp_path, (3, 5, 9, 12))
  for file in list(tmp_path.glob("model.ckpt-5.*")):
    shutil.copy(str(file), str(file).replace("model.ckpt", "pretrained"))
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
  os.remove(str(tmp_path / "model.ckpt-9.index"))
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")


def test_a_directory_that_moved_with_a_state_file_of_full_paths(tmp_path):
  save(tmp_path, (3, 5))
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-5"\n')
  assert checkpoints.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")


def test_an_error_that_is_no_damage_is_raised(tmp_path):
  save(tmp_path)
  with pytest.raises(checkpoints.CheckpointError, match="^does not fit .*ckpt-3$"):
    checkpoints.use_latest(str(tmp_path), does_not_fit)


def does_not_fit(prefix):
  raise checkpoints.CheckpointError("does not fit " + prefix)


def test_sharded_checkpoints(tmp_path):
  path = save(tmp_path, sharded=True)
  first, second = path + ".data-00000-of-00002", path + ".data-00001-of-00002"
  checkpoints.verify_checkpoint(path)
  checkpoints.check_shards_visible(path)
  with open(second, "rb") as file:
    content = file.read()
  flip(0)(second)
  assert f"is damaged in one of {first}, {second} (tensor 'c')" in refused(
    checkpoints.verify_checkpoint, path
  )
  os.remove(second)
  assert (
    refused(checkpoints.verify_checkpoint, path)
    == f"checkpoint {path} is not complete: {second} is missing"
  )
  error = refused(checkpoints.check_shards_visible, path, wait_secs=0)
  assert error.startswith(f"the chief does not see {second}, although")
  assert "a --checkpoint_dir that all tasks share" in error and "sharded=False" in error

  def show():
    with open(second, "wb") as file:
      file.write(content)
  timer = threading.Timer(0.2, show)
  timer.start()
  checkpoints.check_shards_visible(path, wait_secs=60)
  timer.join()
  checkpoints.verify_checkpoint(path)


def test_a_ps_that_wrote_everything_on_its_own_disk(tmp_path):
  path = str(tmp_path / "model.ckpt-1")
  assert refused(checkpoints.check_shards_visible, path, 0).startswith(
      f"the chief does not see {path}.index, {path}.data-*, although")


def test_global_step_of(tmp_path):
  path = save(tmp_path / "steps", [17])
  assert checkpoints.global_step_of_checkpoint(path) == 17
  with tf.Graph().as_default():
    tf.get_variable("a", [1])
    saver = tf.train.Saver()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      named = saver.save(session, str(tmp_path / "other"), global_step=21)
      assert checkpoints.global_step_of_checkpoint(named) == 21
      assert (
        checkpoints.global_step_of_checkpoint(saver.save(session, str(tmp_path / "other"))) is None
      )
  assert "nothing is not complete: " in refused(
    checkpoints.global_step_of_checkpoint, str(tmp_path / "nothing")
  )


def test_listed_is_what_the_state_file_keeps(tmp_path):
  assert checkpoints.listed_checkpoints(str(tmp_path)) == []
  save(tmp_path, (1, 2, 3, 10), keep=2)
  assert checkpoints.listed_checkpoints(str(tmp_path)) == [
      str(tmp_path / "model.ckpt-3"), str(tmp_path / "model.ckpt-10")]


def test_a_newer_checkpoint_than_the_one_that_is_named_is_warned_of(tmp_path, caplog):
  path = save(tmp_path, (3, 5, 9))
  checkpoints.warn_of_newer(path)
  checkpoints.name_latest(str(tmp_path), "model.ckpt-3")
  os.remove(path + ".index")  # that one is none
  checkpoints.warn_of_newer(str(tmp_path / "model.ckpt-5"))
  assert warnings(caplog) == []
  checkpoints.warn_of_newer(str(tmp_path / "model.ckpt-3"))
  assert warnings(caplog) == [
    f"{tmp_path}/checkpoint makes model.ckpt-3 the latest checkpoint, although model.ckpt-5 is "
    "there. To go on with that one, end this job, and put only the line model_checkpoint_path: "
    '"model.ckpt-5" into the file']


@pytest.mark.parametrize("content, used", [
  ("7", 7), ("{", 4), (None, 4), ("[]", 4)])
def test_beside_a_checkpoint_the_file_of_the_one_before_takes_the_place(
    tmp_path, caplog, content, used):
  for step, text in ((9, "1"), (5, content), (3, None), (2, "4")):
    (tmp_path / f"model.ckpt-{step}.index").write_text("")
    if text is not None:
      (tmp_path / f"model.ckpt-{step}.n.json").write_text(text)
  found = checkpoints.read_beside(
    str(tmp_path / "model.ckpt-5"), ".n.json", lambda text: int(text), "It is 0")
  assert found == used
  problem = "missing" if content is None else "damaged"
  assert warnings(caplog) == ([] if used == 7 else [
    f"{tmp_path}/model.ckpt-5.n.json is {problem}. That of model.ckpt-2 is used"])


def test_beside_a_checkpoint_no_file_says_anything(tmp_path, caplog):
  assert checkpoints.read_beside(str(tmp_path / "m-5"), ".n.json", int, "It is 0") is None
  assert warnings(caplog) == [f"{tmp_path}/m-5.n.json is missing. It is 0"]


def test_files_of_another_user_are_no_damage(tmp_path, monkeypatch):
  path = save(tmp_path)
  cut(10)(path + PART)  # root may read everything, so that the error is another one
  monkeypatch.setattr(checkpoints, "is_hidden", lambda name: name.endswith(PART))
  error = refused(latest_intact, tmp_path)
  assert error == (f"checkpoint {path} is there, but this user must not read {path}{PART}. Give "
                   "this user the right to read them")
