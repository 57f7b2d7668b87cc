from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import line_program
from tf1ps.program import contract, new_data, prediction
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)
X = [7., 1., .5, -3., 1e-3, 2., 9.]
# An example of each type, in the order of SPEC.
SPEC = {"x": (tf.float32, [2]), "n": (tf.int32, []), "s": (tf.string, []), "b": (tf.bool, [])}
GOOD = {"x": [1.5, -2.], "n": 3, "s": "é", "b": True}


def with_features(spec):
  """A program whose predictions are its features, of these types and shapes."""
  def input_fn(mode, shard):
    assert mode == "predict"
    made = {name: tf.placeholder(dtype, [None, *shape]) for name, (dtype, shape) in spec.items()}
    return made if "" not in made else made[""]

  def model_fn(features, labels, mode):
    return tf1ps.ModelSpec(predictions=features)

  return Program("features", None, input_fn, model_fn)


def as_example(row):
  features = {}
  for name, value in row.items():
    values = np.ravel(value).tolist()
    kind = type(values[0])
    if kind is str:
      one = tf.train.Feature(bytes_list=tf.train.BytesList(value=[v.encode() for v in values]))
    elif kind is float:
      one = tf.train.Feature(float_list=tf.train.FloatList(value=values))
    else:
      one = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(v) for v in values]))
    features[name] = one
  return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path, rows):
  """Writes examples, which are dicts, as the ending of the path says; returns the path."""
  kind = path.suffix
  if kind == ".npz":
    np.savez(str(path), **{name: np.array([row[name] for row in rows]) for name in rows[0]})
  elif kind == ".tfrecord":
    with tf.io.TFRecordWriter(str(path)) as writer:
      for row in rows:
        writer.write(as_example(row))
  elif kind == ".jsonl":
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
  else:
    def columns(name, value):
      flat = np.ndenumerate(np.array(value, object))
      return [("_".join([name, *map(str, index)]), one) for index, one in flat]
    table = [[pair for name, value in row.items() for pair in columns(name, value)]
             for row in rows]
    with open(str(path), "w", newline="", encoding="utf-8") as file:
      writer = csv.writer(file)
      writer.writerow([name for name, _ in table[0]])
      writer.writerows([[one for _, one in line] for line in table])
  return str(path)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npz", ".tfrecord"])
def test_predictions_of_a_file_are_in_its_order(tmp_path, ending):
  line_program.save(tmp_path / "run", 5, w=2., b=1.)
  path = write(tmp_path / ("new" + ending), [{"x": x} for x in X])
  done = prediction.predict_examples(
    LINE, str(tmp_path / "run"), str(tmp_path / "y.npz"), 3, new_data=path)
  assert done.examples == len(X)
  with np.load(str(tmp_path / "y.npz")) as found:
    assert np.array_equal(found["y"], 2 * np.float32(X) + 1)


def batches(program, path, size=2):
  """The batches that a program with new data gets."""
  program = new_data.with_new_data(program, path)
  with tf.Graph().as_default(), tf.Session() as session:
    shard = tf1ps.pipeline.Shard(batch_size=size, epochs=1, mode="predict")
    features, _ = contract.build_input(program, "predict", shard)
    session.run([op for op in tf.get_default_graph().get_operations()
                 if op.type == "MakeIterator"])
    found = []
    try:
      while True:
        found.append(session.run(features))
    except tf.errors.OutOfRangeError:
      return found


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npz", ".tfrecord"])
def test_every_type_and_shape(tmp_path, ending):
  rows = [GOOD, {"x": [0., .25], "n": -7, "s": "a,\"b\"\nc", "b": False}, dict(GOOD, n=2**31 - 1)]
  first, second = batches(with_features(SPEC), write(tmp_path / ("new" + ending), rows))
  assert {name: one.dtype for name, one in first.items()} == {
    "x": np.float32, "n": np.int32, "s": object, "b": bool}
  assert first["x"].tolist() == [[1.5, -2.], [0., .25]] and second["x"].shape == (1, 2)
  assert first["n"].tolist() == [3, -7] and second["n"].tolist() == [2**31 - 1]
  assert [one.decode() for one in first["s"]] == ["é", "a,\"b\"\nc"]
  assert first["b"].tolist() == [True, False]


def test_columns_are_matched_by_name_and_those_of_one_tensor_by_their_order(tmp_path):
  path = tmp_path / "new.csv"
  path.write_text("n, x_1,x_0\n\n1,2,3\n")
  two = with_features({"x": (tf.float32, [2]), "n": (tf.int64, [1])})
  found, = batches(two, str(path))
  assert found["x"].tolist() == [[3., 2.]] and found["n"].tolist() == [[1]]
  single = with_features({"": (tf.float32, [3])})
  assert [one.tolist() for one in batches(single, str(path))] == [[[1., 2., 3.]]]
  path.write_text("features_2,features_1,features_0\n1,2,3\n")
  assert [one.tolist() for one in batches(single, str(path))] == [[[3., 2., 1.]]]
  (tmp_path / "new.jsonl").write_text('{"features": [1, 2, 3]}\n')
  assert [one.tolist() for one in batches(single, str(tmp_path / "new.jsonl"))] == [[[1., 2., 3.]]]


@pytest.mark.parametrize("ending", [".jsonl", ".npz", ".tfrecord"])
def test_an_open_size_is_the_same_in_all_examples(tmp_path, ending):
  program = with_features({"x": (tf.float32, [None])})
  path = write(tmp_path / ("new" + ending), [{"x": [1., 2., 3.]}, {"x": [4., 5., 6.]}])
  assert [one["x"].tolist() for one in batches(program, path)] == [[[1., 2., 3.], [4., 5., 6.]]]


FEATURES = "The program's features are x: float32 [2], n: int32, s: string, b: bool"
HEADER = "x_0,x_1,n,s,b\n"
LINE_1 = "1,2,3,a,true\n"
OBJECT = '{"x": [1, 2], "n": 3, "s": "a", "b": true}\n'


@pytest.mark.parametrize("name, text, expected", [
  ("a.txt", "", "the new data must end in .csv, .jsonl, .npz, .tfrecord, got '{}'"),
  ("a.csv", "", "{} has no example"),
  ("a.csv", HEADER, "{} has no example"),
  ("a.csv", "x_0,n,s,b\n1,3,a,true\n", "{}:1: the column 'x_1' is missing. " + FEATURES),
  ("a.csv", HEADER.replace("n", "y"),
   "{}:1: the column 'n' is missing and the column 'y' belongs to no feature. " + FEATURES),
  ("a.csv", LINE_1, "{}:1: the column 'x_0' is missing and the column '1' belongs to no feature. "
   + FEATURES),
  ("a.csv", HEADER.replace("b", "n"), "{}:1: two columns are called 'n'"),
  ("a.csv", HEADER + LINE_1 + "1,2,3,a\n", "{}:3: 4 fields, but the first line names 5 columns"),
  ("a.csv", HEADER + LINE_1 + "1,,3,a,true\n", "{}:3: the column 'x_1' must be float32, got ''"),
  ("a.csv", HEADER + "1,2,3,\"a\nb\",true\n1,2,3.5,a,true\n",
   "{}:4: the column 'n' must be int32, got '3.5'"),
  ("a.csv", HEADER + "1,2,3000000000,a,true\n", "{}:2: 'n': 3000000000 is beyond int32"),
  ("a.csv", HEADER + "1e50,2,3,a,true\n", "{}:2: 'x' has a value beyond float32"),
  ("a.csv", HEADER + "1,2,3,a,maybe\n", "{}:2: the column 'b' must be bool, got 'maybe'"),
  ("a.csv", HEADER + "1,2,3,\"a\"b,true\n", "{}:2: ',' expected after '\"'"),
  ("a.csv", HEADER.encode() + b"1,2,3,\xff,true\n",
   "{}:2: not UTF-8: 'utf-8' codec can't decode byte 0xff in position 6: invalid start byte"),
  ("a.jsonl", OBJECT + "\n" + OBJECT[:-3],
   "{}:3: not JSON: Expecting "),
  ("a.jsonl", "[1, 2]\n", "{}:1: must be an object with the features' names, got [1, 2]"),
  ("a.jsonl", OBJECT.replace('"n": 3, ', ""), "{}:1: the name 'n' is missing. " + FEATURES),
  ("a.jsonl", OBJECT + OBJECT.replace('"n": 3', '"n": 3, "y": 1'),
   "{}:2: the name 'y' belongs to no feature. " + FEATURES),
  ("a.jsonl", OBJECT.replace("[1, 2]", "[1, 2, 3]"),
   "{}:1: 'x' has shape [3], but the feature is x: float32 [2]"),
  ("a.jsonl", OBJECT.replace("[1, 2]", "[[1], 2]"), "{}:1: 'x' must be float32, got [1]"),
  ("a.jsonl", OBJECT.replace("[1, 2]", "[1, null]"), "{}:1: 'x' must be float32, got None"),
  ("a.jsonl", OBJECT.replace("[1, 2]", "[1, true]"), "{}:1: 'x' must be float32, got True"),
  ("a.jsonl", OBJECT.replace("3", "3.0"), "{}:1: 'n' must be int32, got 3.0"),
  ("a.jsonl", OBJECT.replace('"a"', "1"), "{}:1: 's' must be string, got 1"),
  ("a.jsonl", OBJECT.replace("true", "1"), "{}:1: 'b' must be bool, got 1"),
  ("a.npz", "nothing", "{} is not a .npz file: "),
  ("a.npz", "nothing" * 99, "{} is not a .npz file: File is not a zip file"),
  ("a.tfrecord", "nothing" * 99, "{} cannot be read: corrupted record at 0"),
  ("a.tfrecord", "nothing", "{} ends in the middle of a record, which has 7 bytes")])
def test_what_does_not_fit_is_named_with_its_line(tmp_path, name, text, expected):
  path = tmp_path / name
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(new_data.NewDataError) as error:
    new_data.with_new_data(with_features(SPEC), str(path))
  assert str(error.value).startswith(expected.format(path)), str(error.value)


@pytest.mark.parametrize("ending, changes, expected", [
  (".npz", dict(x=[[1., 2.]] * 3), "{}: the array 'n' has 2 examples, but 'x' has 3"),
  (".npz", dict(x=[1., 2.]), "{}: the array 'x', examples 0 to 1 has shape [2], but the feature is "
   "x: float32 [2]"),
  (".npz", dict(n=[1., 2.]), "{}: the array 'n', examples 0 to 1 is float64, but the feature is "
   "n: int32"),
  (".npz", dict(n=[1, 2**40]), "{}: the array 'n', examples 0 to 1: 1099511627776 is beyond int32"),
  (".npz", dict(y=[1, 2]), "{}: the array 'y' belongs to no feature. " + FEATURES),
  (".npz", dict(s=np.array(["a", None], object)), "{}: the array 's' must have a dimension"),
  (".tfrecord", dict(x=[1.]), "{}: record 2: x: float32 [2] takes other numbers of values than 1"),
  (".tfrecord", dict(n=1.5), "{}: record 2: 'n' must be int32, got 1.5"),
  (".tfrecord", dict(b=2), "{}: record 2: 'b' must be bool, got 2"),
  (".tfrecord", dict(y=2), "{}: record 2: the feature 'y' belongs to no feature. " + FEATURES)])
def test_arrays_and_records_that_do_not_fit_are_named(tmp_path, ending, changes, expected):
  path = str(tmp_path / ("a" + ending))
  if ending == ".npz":
    good = {name: np.array([value] * 2) for name, value in GOOD.items()}
    np.savez(path, **dict(good, **{name: np.array(one) for name, one in changes.items()}))
  else:
    write(tmp_path / "a.tfrecord", [GOOD, dict(GOOD, **changes)])
  with pytest.raises(new_data.NewDataError) as error:
    new_data.with_new_data(with_features(SPEC), path)
  assert str(error.value).startswith(expected.format(path)), str(error.value)


def test_ragged_examples_are_refused(tmp_path):
  path = write(tmp_path / "a.jsonl", [{"x": [1., 2.]}, {"x": [1., 2.]}, {"x": [1.]}])
  with pytest.raises(new_data.NewDataError, match=r":3: 'x' has shape \[1\], but the feature is "
                     r"x: float32 \[2\]$"):
    new_data.with_new_data(with_features({"x": (tf.float32, [None])}), path)


def test_mistakes_come_before_work_and_leave_no_file(tmp_path):
  (tmp_path / "a.csv").write_text("x\n1\n2\nthree\n")
  with pytest.raises(new_data.NewDataError, match="a.csv:4: the column 'x' must be float32"):
    prediction.predict_examples(LINE, "/no/such/checkpoint", str(tmp_path / "y.csv"), 2,
                       new_data=str(tmp_path / "a.csv"))
  assert [each.name for each in tmp_path.iterdir()] == ["a.csv"]
  with pytest.raises(new_data.NewDataError, match="b.csv cannot be read: .*b.csv"):
    new_data.with_new_data(LINE, str(tmp_path / "b.csv"))


def test_features_without_names_or_shapes_are_refused(tmp_path):
  def program(features):
    return Program("features", None, lambda mode, shard: (features(), None), None)

  with pytest.raises(contract.ProgramError, match="so that each has a name, got"):
    new_data.with_new_data(program(lambda: (tf.constant([1.]), tf.constant([1.]))), "a.csv")
  with pytest.raises(contract.ProgramError, match="'x' has no known shape in mode 'predict'"):
    new_data.with_new_data(program(lambda: {"x": tf.placeholder(tf.float32)}), "a.csv")
  with pytest.raises(contract.ProgramError, match="'x' is complex64: no file has that"):
    new_data.with_new_data(program(lambda: {"x": tf.constant([1j], tf.complex64)}), "a.csv")
  with pytest.raises(new_data.NewDataError, match="the number of columns of x: float32 .* is open"):
    new_data.with_new_data(with_features({"x": (tf.float32, [None])}), "a.csv")


def test_only_a_batch_is_read_at_a_time(monkeypatch):
  drawn = []

  def lines(path):
    for number in range(10**9):
      drawn.append(number)
      yield "x\n" if number == 0 else "%d\n" % number

  monkeypatch.setattr(new_data, "_lines", lines)
  features = [new_data._Feature("x", tf.float32, ())]
  for batch in new_data._from_csv("a.csv", features, 4, False):
    assert batch["x"].tolist() == [1., 2., 3., 4.] and len(drawn) == 5
    break


def test_of_an_array_only_a_batch_is_in_memory(tmp_path):
  path = write(tmp_path / "a.npz", [{"x": float(x)} for x in range(100)])
  features = [new_data._Feature("x", tf.float32, ())]
  found = [batch["x"] for batch in new_data._from_npz(path, features, 40, False)]
  assert [len(one) for one in found] == [40, 40, 20]
  assert np.concatenate(found).tolist() == list(range(100))
