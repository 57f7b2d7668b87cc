from __future__ import annotations

import csv
import json
import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import line_program
from tf1ps.checkpoint import checkpoints
from tf1ps.program import prediction
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)
W, B = np.float32(.1), np.float32(1 / 3)
Y = W * line_program.X + B


@pytest.fixture
def trained(tmp_path):
  line_program.save(tmp_path / "run", 4, w=0., b=0.)
  line_program.save(tmp_path / "run", 5, w=W, b=B)
  return str(tmp_path / "run")


def predict(trained, output, **more):
  return prediction.predict_examples(more.pop("program", LINE), trained, str(output), 4, **more)


def with_model(predictions):
  """A program whose predictions are made of x by this function."""
  def model_fn(features, labels, mode):
    assert labels is None
    line_program.model_fn(features, labels, mode)
    return tf1ps.ModelSpec(predictions=predictions(features["x"]))
  return LINE._replace(model_fn=model_fn)


def test_csv_brings_back_every_number(trained, tmp_path):
  done = predict(trained, tmp_path / "p.csv")
  assert (done.examples, done.names, done.checkpoint) == (
      10, ("y", "pair", "even"), trained + "/model.ckpt-5")
  with open(str(tmp_path / "p.csv"), newline="") as file:
    header, *rows = csv.reader(file)
  assert header == ["y", "pair_0", "pair_1", "even"]
  columns = list(zip(*rows))
  for column, expected in zip(columns, (Y, Y, -Y)):
    assert [np.float32(text) for text in column] == list(expected)
  assert columns[3] == ("False",) * 10


def test_jsonl_brings_back_every_number(trained, tmp_path):
  assert predict(trained, tmp_path / "p.jsonl").examples == 10
  examples = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
  assert [np.float32(example["y"]) for example in examples] == list(Y)
  assert np.array_equal(np.float32([example["pair"] for example in examples]),
                        np.stack([Y, -Y], axis=1))
  assert [example["even"] for example in examples] == [False] * 10
  assert (tmp_path / "p.jsonl").read_text().startswith(
      '{"y": 0.33333334, "pair": [0.33333334, -0.33333334], "even": false}\n')


def test_npz_holds_the_arrays(trained, tmp_path):
  assert predict(trained, tmp_path / "p.npz").examples == 10
  with np.load(str(tmp_path / "p.npz")) as arrays:
    assert sorted(arrays) == ["even", "pair", "y"]
    assert arrays["y"].dtype == np.float32 and np.array_equal(arrays["y"], Y)
    assert np.array_equal(arrays["pair"], np.stack([Y, -Y], axis=1))
    assert arrays["even"].dtype == bool


def test_a_single_tensor_is_called_prediction(trained, tmp_path):
  program = with_model(lambda x: tf.reshape(tf.stack([x, x, x, x], axis=1), [-1, 2, 2]))
  predict(trained, tmp_path / "p.csv", program=program)
  assert (tmp_path / "p.csv").read_text().startswith(
      "prediction_0_0,prediction_0_1,prediction_1_0,prediction_1_1\n0.0,0.0,0.0,0.0\n1.0,")


def test_strings_and_integers(trained, tmp_path):
  def predictions(x):
    return {"file": tf.strings.join(["é,\n", tf.as_string(tf.cast(x, tf.int64))]),
            "n": tf.cast(x, tf.int64) * 10 ** 17, "special": tf.log(-x)}

  for name in ("p.csv", "p.jsonl", "p.npz"):
    predict(trained, tmp_path / name, program=with_model(predictions))
  with open(str(tmp_path / "p.csv"), newline="", encoding="utf-8") as file:
    assert list(csv.reader(file))[2] == ["é,\n1", "1" + "0" * 17, "nan"]
  first, second = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()[:2]
  assert json.loads(second)["file"] == "é,\n1" and json.loads(second)["n"] == 10 ** 17
  assert json.loads(first)["special"] == float("-inf")
  with np.load(str(tmp_path / "p.npz")) as arrays:
    assert arrays["file"][1].decode("utf-8") == "é,\n1"


def test_another_checkpoint_can_be_chosen(trained, tmp_path):
  predict(trained, tmp_path / "p.csv", checkpoint=trained + "/model.ckpt-4")
  assert (tmp_path / "p.csv").read_text().splitlines()[9] == "0.0,0.0,-0.0,True"
  with pytest.raises(checkpoints.CheckpointError, match="model.ckpt-3 does not exist: give the p"):
    predict(trained, tmp_path / "p.csv", checkpoint=trained + "/model.ckpt-3")


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_url_is_written_by_tensorflow(trained, tmp_path, monkeypatch, ending):
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  predict(trained, "file://%s/p.%s" % (tmp_path, ending))
  predict(trained, tmp_path / ("q." + ending))
  assert (tmp_path / ("p." + ending)).stat().st_size == (tmp_path / ("q." + ending)).stat().st_size
  if ending == "npz":
    with np.load(str(tmp_path / "p.npz")) as arrays:
      assert list(arrays["y"]) == list(Y)
  assert sorted(os.listdir(str(tmp_path))) == ["here", "p." + ending, "q." + ending, "run"]
  assert os.listdir(".") == []


def shapes_change(x):
  return {"p": tf.tile(x[:, tf.newaxis], [1, tf.size(x)])}


@pytest.mark.parametrize("name, predictions, expected", [
    ("p.csv", lambda x: {"a_0": x, "a": tf.stack([x, x], 1)}, "the same name among a_0, a_0, a_1"),
    ("p.csv", shapes_change, "the same columns in every line. Write .jsonl"),
    ("p.npz", shapes_change, "prediction 'p' changes between batches, .*: write .jsonl"),
    ("p.csv", lambda x: {"a": tf.reduce_sum(tf.stack([x, x]), axis=1)},
     r"'a' has shape \(2,\) for a batch of 4"),
    ("p.jsonl", lambda x: {"a": tf.fill([tf.size(x)], b"\xff")}, "not UTF-8: write .npz"),
])
def test_what_a_file_cannot_hold_is_refused_and_nothing_is_left(
    trained, tmp_path, name, predictions, expected):
  (tmp_path / name).write_text("what was there before")
  with pytest.raises(prediction.PredictionError, match=expected):
    predict(trained, tmp_path / name, program=with_model(predictions))
  assert (tmp_path / name).read_text() == "what was there before"
  assert sorted(os.listdir(str(tmp_path))) == [name, "run"]


def test_shapes_may_change_in_jsonl(trained, tmp_path):
  predict(trained, tmp_path / "p.jsonl", program=with_model(shapes_change))
  assert (tmp_path / "p.jsonl").read_text().splitlines()[-1] == '{"p": [9.0, 9.0]}'


def test_wrong_outputs_are_refused_before_anything_is_read(tmp_path):
  with pytest.raises(prediction.PredictionError, match=r"end in .csv, .jsonl, .npz, got '.*p.txt'"):
    predict("nowhere", tmp_path / "p.txt")
  with pytest.raises(prediction.PredictionError, match="the folder .*missing does not exist"):
    predict("nowhere", tmp_path / "missing" / "p.csv")
  with pytest.raises(prediction.PredictionError, match="cannot be written: .*scheme 'no' not impl"):
    predict("nowhere", "no://where/p.csv")
  (tmp_path / "folder.csv").mkdir()
  with pytest.raises(prediction.PredictionError, match="folder.csv' is a directory: give the name"):
    predict("nowhere", tmp_path / "folder.csv")
  with pytest.raises(checkpoints.CheckpointError, match="directory nowhere does not exist"):
    predict("nowhere", tmp_path / "p.csv")


def test_no_examples_are_an_error(trained, tmp_path):
  def input_fn(mode, shard):
    dataset = tf.data.Dataset.from_tensor_slices({"x": line_program.X}).take(0).batch(2)
    return tf.data.make_one_shot_iterator(dataset).get_next(), None

  with pytest.raises(prediction.PredictionError, match="gave no example in mode 'predict'"):
    predict(trained, tmp_path / "p.csv", program=LINE._replace(input_fn=input_fn))
  assert os.listdir(str(tmp_path)) == ["run"]
