from __future__ import annotations

import os
import re
import threading

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints

PART = ".data-00000-of-00001"


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


def cut(size):
  def change(path):
    with open(path, "rb") as file:
      content = file.read()
    with open(path, "wb") as file:
      file.write(content[:size])
  return change


def flip(place):
  def change(path):
    with open(path, "rb") as file:
      content = bytearray(file.read())
    content[place] ^= 4
    with open(path, "wb") as file:
      file.write(content)
  return change


def refused(function, *arguments, **keywords):
  with pytest.raises(checkpoints.CheckpointError) as error:
    function(*arguments, **keywords)
  assert not isinstance(error.value, tf.errors.OutOfRangeError)
  return str(error.value)


def test_latest(tmp_path):
  assert checkpoints.latest_checkpoint(str(tmp_path / "nothing")) is None
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None
  path = save(tmp_path)
  assert (
    checkpoints.latest_checkpoint(str(tmp_path))
    == checkpoints.latest_checkpoint(str(tmp_path), True)
    == path
  )
  assert path == str(tmp_path / "model.ckpt-3")


def advice(tmp_path, names, best):
  return (f'There is {names}. The newest readable one is {best}. To use it, put only the line '
          f'model_checkpoint_path: "{best}" into {tmp_path}/checkpoint. To start from step 0, use '
          "another directory")


def test_a_missing_state_file_is_refused_and_the_advice_helps(tmp_path):
  save(tmp_path, (9, 10, 11))
  cut(100)(str(tmp_path / ("model.ckpt-11" + PART)))
  (tmp_path / "checkpoint").unlink()
  error = refused(checkpoints.latest_checkpoint, str(tmp_path))
  assert error == (f"{tmp_path} has checkpoints, but no state file 'checkpoint'. " + advice(
      tmp_path, "model.ckpt-11, model.ckpt-10, model.ckpt-9", "model.ckpt-10"))
  line = error.split("put only the line ")[1].split(" into ")[0]
  (tmp_path / "checkpoint").write_text(line + "\n")
  assert checkpoints.latest_checkpoint(str(tmp_path), verify_data=True) == str(
    tmp_path / "model.ckpt-10"
  )


@pytest.mark.parametrize("content", [b"", b"hello {", b"\xff\xfe\x00"])
def test_a_damaged_state_file_is_refused(tmp_path, content):
  save(tmp_path)
  (tmp_path / "checkpoint").write_bytes(content)
  assert refused(checkpoints.latest_checkpoint, str(tmp_path)) == (
      f"the state file {tmp_path}/checkpoint names no checkpoint: it is empty or damaged. "
      + advice(tmp_path, "model.ckpt-3, model.ckpt-2, model.ckpt-1", "model.ckpt-3"))
  assert checkpoints.listed_checkpoints(str(tmp_path)) == []


def test_a_dangling_state_file_is_refused(tmp_path):
  save(tmp_path, (1, 2))
  os.remove(str(tmp_path / "model.ckpt-2.index"))
  assert refused(checkpoints.latest_checkpoint, str(tmp_path)) == (
      f"the state file {tmp_path}/checkpoint names {tmp_path}/model.ckpt-2, but there is no "
      f"{tmp_path}/model.ckpt-2.index. " + advice(tmp_path, "model.ckpt-1", "model.ckpt-1"))
  assert checkpoints.listed_checkpoints(str(tmp_path)) == [str(tmp_path / "model.ckpt-1")]


def test_a_state_file_alone_is_refused(tmp_path):
  (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
  assert refused(checkpoints.latest_checkpoint, str(tmp_path)).endswith(
      "There is no other checkpoint. To start from step 0, delete the file "
      f"{tmp_path}/checkpoint")


@pytest.mark.parametrize("ending, change, expected", [
    (PART, cut(100), r"is damaged in .*model\.ckpt-3.data-00000-of-00001 \(tensor '.+'\): "),
    (PART, flip(100), r"is damaged in .*model\.ckpt-3.data-00000-of-00001 \(tensor 'a'\): "),
    (".index", cut(40), r"is damaged in .*model\.ckpt-3\.index: "),
    (".index", flip(30), r"is damaged in .*model\.ckpt-3\.index: "),
    (".index", cut(0), r"is damaged in .*model\.ckpt-3\.index: "),
    (PART, os.remove, r"is not complete: .*model\.ckpt-3\.data-\* is missing"),
    (".index", os.remove, r"is not complete: .*model\.ckpt-3\.index is missing"),
])
def test_every_damage_is_found_and_the_one_before_is_named(tmp_path, ending, change, expected):
  path = save(tmp_path)
  change(path + ending)
  error = refused(checkpoints.verify_checkpoint, path)
  assert re.search(expected, error)
  if (ending, change) != (".index", os.remove):
    assert refused(
      checkpoints.latest_checkpoint, str(tmp_path), verify_data=True
    ) == error + ". " + advice(tmp_path, "model.ckpt-2, model.ckpt-1", "model.ckpt-2")


def test_when_nothing_reads_well(tmp_path):
  path = save(tmp_path, (1, 2))
  os.remove(path + PART)
  cut(30)(str(tmp_path / ("model.ckpt-1" + PART)))
  assert refused(checkpoints.latest_checkpoint, str(tmp_path), True).endswith(
      "There is model.ckpt-1. None of them is readable. To start from step 0, use another "
      "directory")


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
