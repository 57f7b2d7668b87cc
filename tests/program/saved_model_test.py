from __future__ import annotations

import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import serving_tasks
from tests.training import line_program
from tf1ps.checkpoint import checkpoints
from tf1ps.program import contract, prediction, saved_model
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)
IS_TF2 = tf.__version__.startswith("2.")


@pytest.fixture
def trained(tmp_path):
  line_program.save(tmp_path / "run", 4, w=0., b=0.)
  line_program.save(tmp_path / "run", 5, w=.1, b=1 / 3)
  return str(tmp_path / "run")


def single_input_fn(mode, shard):
  """The feature alone, in batches whose size is known while the graph is built."""
  rows = tf.data.Dataset.from_tensor_slices(line_program.X).batch(2, drop_remainder=True)
  return tf.data.make_one_shot_iterator(rows).get_next(), None


def table_model_fn(features, labels, mode):
  """Looks x up in a table that knows 2 alone."""
  assert labels is None and features.shape.as_list() == [None]
  line_program.model_fn({"x": features}, None, mode)
  table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(tf.constant([2], tf.int64), tf.constant([20.])), -1.)
  return tf1ps.ModelSpec(predictions=table.lookup(tf.cast(features, tf.int64)))


def ref_model_fn(features, labels, mode):
  """The line's model on ref variables, which TensorFlow 1.15 reads from a newer one."""
  with tf.variable_scope(tf.get_variable_scope(), use_resource=False):
    return line_program.model_fn(features, labels, mode)


def serve(start, *models):
  """What models, each (name of the input, path), answer to x = 0 to 9: a list of {name: list}."""
  if IS_TF2:
    client = start("client", serving_tasks.ask_saved_models, models)
    assert client.wait() == 0, client.output
    return [json.loads(line) for line in client.lines if line.startswith("{")]
  answers = []
  for name, path in models:
    with tf.Graph().as_default(), tf.Session() as session:
      loaded = tf.saved_model.loader.load(session, ["serve"], path)
      signature = loaded.signature_def["serving_default"]
      outputs = {key: value.name for key, value in signature.outputs.items()}
      answer = session.run(outputs, {signature.inputs[name].name: line_program.X})
    answers.append({key: value.tolist() for key, value in answer.items()})
  return answers


@pytest.mark.slow
def test_exported_models_answer_with_the_numbers_of_predict(start, trained, tmp_path):
  paths = {kind: str(tmp_path / kind) for kind in ("resource", "ref", "table")}
  for kind, program in ("resource", LINE), ("ref", LINE._replace(model_fn=ref_model_fn)):
    done = saved_model.export_saved_model(program, trained, paths[kind])
    assert done.export_dir == paths[kind] and done.checkpoint == trained + "/model.ckpt-5"
    assert done.inputs == {"x": "float32 [?]"}
    assert done.outputs == {"y": "float32 [?]", "pair": "float32 [?, 2]", "even": "bool [?]"}
  os.mkdir(paths["table"])  # one that is empty may be there
  done = saved_model.export_saved_model(
    Program("table", None, single_input_fn, table_model_fn), trained, paths["table"],
    checkpoint=trained + "/model.ckpt-4")
  assert list(done.inputs) == ["features"] and done.checkpoint == trained + "/model.ckpt-4"
  prediction.predict_examples(LINE, trained, str(tmp_path / "p.npz"), 4)
  with np.load(str(tmp_path / "p.npz")) as arrays:
    expected = {name: arrays[name].tolist() for name in arrays}
  answers = serve(
    start, ("x", paths["resource"]), ("x", paths["ref"]), ("features", paths["table"]))
  assert answers == [expected, expected, {"prediction": [-1., -1., 20.] + [-1.] * 7}]
  assert sorted(os.listdir(str(tmp_path))) == ["p.npz", "ref", "resource", "run", "table"]


def test_a_url_is_written_by_tensorflow(trained, tmp_path, monkeypatch):
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  url = "file://%s/out" % tmp_path
  assert saved_model.export_saved_model(LINE, trained, url + "/").export_dir == url
  assert tf.saved_model.contains_saved_model(str(tmp_path / "out"))
  assert sorted(os.listdir(str(tmp_path))) == ["here", "out", "run"] and os.listdir(".") == []


def test_a_place_that_cannot_take_it_is_refused(trained):
  with pytest.raises(saved_model.ExportError, match="run exists and is not an empty directory"):
    saved_model.export_saved_model(LINE, trained, trained)
  with pytest.raises(saved_model.ExportError,
                     match="cannot be written: .*scheme 'no' not implemented"):
    saved_model.export_saved_model(LINE, trained, "no://where")


def test_features_that_cannot_be_inputs_are_refused(trained, tmp_path):
  def input_fn(mode, shard):
    return {"x": tf.SparseTensor([[0, 0]], [1.], [4, 2])}, None

  with pytest.raises(contract.ProgramError, match="must be a tensor or a dict of tensors"):
    saved_model.export_saved_model(LINE._replace(input_fn=input_fn), trained, str(tmp_path / "out"))


def test_a_failed_export_leaves_nothing(trained, tmp_path):
  def model_fn(features, labels, mode):
    tf.get_variable("more", [2])
    return line_program.model_fn(features, labels, mode)

  with pytest.raises(checkpoints.CheckpointError, match="lacks the model's variable 'more'"):
    saved_model.export_saved_model(LINE._replace(model_fn=model_fn), trained, str(tmp_path / "out"))
  assert os.listdir(str(tmp_path)) == ["run"]
  with pytest.raises(checkpoints.CheckpointError, match="%s has no checkpoint" % tmp_path):
    saved_model.export_saved_model(LINE, str(tmp_path), str(tmp_path / "out"))


def test_a_directory_that_is_filled_meanwhile_stays_as_it_is(trained, tmp_path):
  def model_fn(features, labels, mode):
    (tmp_path / "out" / "in the way").mkdir(parents=True)
    return line_program.model_fn(features, labels, mode)

  with pytest.raises(saved_model.ExportError, match="out exists and is not an empty directory"):
    saved_model.export_saved_model(LINE._replace(model_fn=model_fn), trained, str(tmp_path / "out"))
  assert sorted(os.listdir(str(tmp_path))) == ["out", "run"]
