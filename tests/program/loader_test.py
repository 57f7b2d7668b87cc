from __future__ import annotations

import json
import os
import sys

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import iterators
from tf1ps.pipeline.shard import Shard
from tf1ps.program import loader as program

GOOD = "def input_fn(mode, shard): pass\ndef model_fn(features, labels, mode): pass\n"


@pytest.fixture(autouse=True)
def python(monkeypatch):
  """Takes back what an import leaves behind."""
  monkeypatch.setattr(sys, "path", list(sys.path))
  before = set(sys.modules)
  yield
  for name in set(sys.modules) - before:
    if name.startswith("p_"):
      del sys.modules[name]


def write(folder, name, text):
  path = folder / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text)
  return str(path)


def refused(name):
  with pytest.raises(program.ProgramError) as error:
    program.load_program(name)
  return str(error.value)


def test_a_path_is_imported_like_python_would(tmp_path):
  write(tmp_path, "p_helper.py", "BATCH = 7\n")
  path = write(tmp_path, "p_main.py", "from absl import flags\nimport p_helper\n"
               "flags.DEFINE_integer('p_flag', p_helper.BATCH, '')\n" + GOOD)
  loaded = program.load_program(path)
  from absl import flags
  assert flags.FLAGS["p_flag"].value == 7
  assert loaded.name == path and loaded.module is sys.modules["p_main"]
  assert loaded.input_fn is loaded.module.input_fn and loaded.model_fn is loaded.module.model_fn
  assert program.load_program(os.path.relpath(path)).module is loaded.module
  delattr(flags.FLAGS, "p_flag")


def test_a_module_is_imported_by_its_name(tmp_path):
  write(tmp_path, "p_package/__init__.py", "")
  write(tmp_path, "p_package/good.py", GOOD)
  sys.path.insert(0, str(tmp_path))
  loaded = program.load_program("p_package.good")
  assert loaded.module is sys.modules["p_package.good"]
  assert refused("p_package.goood") == (
      "there is no module 'p_package.goood'; did you mean p_package.good?")
  assert refused("p_pakkage.good") == (
      "there is no module 'p_pakkage.good'; did you mean p_package?")
  assert refused("zqx") == "there is no module 'zqx'"


def test_a_missing_file_names_the_nearest(tmp_path):
  path = write(tmp_path, "p_digits.py", GOOD)
  wrong = path.replace("digits", "digit")
  assert refused(wrong) == f"there is no program {wrong}; did you mean {path}?"
  assert refused(os.path.join(os.sep, "nowhere", "x.py")) == "there is no program /nowhere/x.py"
  assert refused("") == "--program is empty: give a module's name or the path of a .py file"


def test_a_file_may_not_take_the_place_of_a_module(tmp_path):
  path = write(tmp_path, "json.py", GOOD)
  assert refused(path) == (f"{path} cannot be imported as 'json': a module of this name is loaded "
                           f"already, from {json.__file__}; rename the file")


@pytest.mark.parametrize("text, line, error", [
    ("x = 1\nx = (\n", 2, SyntaxError),
    ("import tensorflow.compat.v1 as tf\n\ntf.constant(1).op.nothing\n", 3, AttributeError),
    ("import tensorflow.compat.v1 as tf\ntf.constant(1, tf.string)\n", 2, TypeError),
    ("import json\njson.loads('?')\n", 2, json.JSONDecodeError),
    ("import p_nowhere\n", 1, ModuleNotFoundError),
])
def test_an_error_inside_the_program_is_chained_and_its_line_named(tmp_path, text, line, error):
  path = write(tmp_path, "p_broken.py", text)
  with tf.Graph().as_default(), pytest.raises(program.ProgramError) as caught:
    program.load_program(path)
  place = f"{path} cannot be imported ({path}:"
  assert str(caught.value).startswith(place)
  if error is not SyntaxError:  # Python versions count differently there
    assert str(caught.value).startswith(f"{place}{line}): {error.__name__}: ")
  assert isinstance(caught.value.__cause__, error)
  assert "p_broken" not in sys.modules


def test_an_error_in_what_the_program_imports_names_the_line_there(tmp_path):
  other = write(tmp_path, "p_other.py", "\n1 / 0\n")
  path = write(tmp_path, "p_main.py", "import p_other\n")
  assert refused(path) == (
      f"{path} cannot be imported ({other}:2): ZeroDivisionError: division by zero")
  sys.path.insert(0, str(tmp_path))
  assert refused("p_main") == (
      f"p_main cannot be imported ({other}:2): ZeroDivisionError: division by zero")


def test_a_program_that_ends_python_is_refused(tmp_path):
  path = write(tmp_path, "p_exits.py", "import sys\nsys.exit(0)\n")
  assert "it ends Python while it is imported" in refused(path)


@pytest.mark.parametrize("text, expected", [
    ("def model_fn(features, labels, mode): pass",
     "has no function input_fn(mode, shard)"),
    ("def input_fn(mode, shard): pass\ndef model(features, labels, mode): pass",
     "has no function model_fn(features, labels, mode); did you mean model?"),
    ("input_fn = 3\n", "has no function input_fn(mode, shard)"),
    ("def input_fn(mode): pass", ": input_fn(mode) must take (mode, shard), and what else it takes "
     "must have a default: too many positional arguments"),
    ("def input_fn(mode, shard, size): pass", ": input_fn(mode, shard, size) must take (mode, "
     "shard), and what else it takes must have a default: missing a required argument: 'size'"),
    ("def input_fn(shard, mode): pass",
     ": input_fn(shard, mode) takes its parameters in another order than (mode, shard)"),
])
def test_missing_and_wrong_functions_are_refused(tmp_path, text, expected):
  path = write(tmp_path, "p_wrong.py", text)
  assert refused(path) == path + (" " if expected.startswith("has") else "") + expected


def test_more_parameters_with_defaults_and_other_names_are_fine(tmp_path):
  program.load_program(write(
      tmp_path, "p_more.py", "def input_fn(mode, shard, size=3, *, seed=None): pass\n"
      "def model_fn(features, _, mode, **more): pass\n"))


def build(result, mode="train"):
  return program.build_input(
      program.Program("p", None, lambda mode, shard: result, None), mode, Shard(mode=mode))


def test_input_is_a_pair_of_structures_of_tensors():
  with tf.Graph().as_default():
    x = tf.constant([[1.], [2.], [3.]])
    sparse = tf.SparseTensor([[0, 0]], [1.], [4, 2])
    assert build((x, None)) == (x, None)
    features, labels = build([{"a": x, "b": (sparse, x)}, [x]])
    assert features["b"][0] is sparse and labels == [x]


def test_a_dataset_of_pairs_becomes_the_tensors_of_one_batch():
  with tf.Graph().as_default() as graph, tf.Session() as session:
    dataset = tf.data.Dataset.from_tensors(({"a": [1., 2.]}, [3, 4]))
    features, labels = build(dataset)
    session.run(iterators.iterator_initializers(graph))
    assert session.run([features["a"], labels])[1].tolist() == [3, 4]


@pytest.mark.parametrize("result, expected", [
    (lambda: None, r"must return \(features, labels\), got None: is its `return` missing\?"),
    (lambda: tf.constant([1.]), r"must return \(features, labels\), got <tf.Tensor"),
    (lambda: tf.data.Dataset.range(3), r"must be pairs \(features, labels\), each of one batch"),
    (lambda: tf.data.make_initializable_iterator(tf.data.Dataset.range(3)),
     r"got an iterator: return its `get_next\(\)`"),
    (lambda: tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)), "got an iterator: return"),
    (lambda: ({}, None), "returned features without a tensor: {}"),
    (lambda: (tf.constant([1.]), {"a": 3}), "among the labels is 3"),
])
def test_another_input_is_refused(result, expected):
  with tf.Graph().as_default(), pytest.raises(program.ProgramError, match=expected):
    build(result())


def test_batch_size_is_the_first_dimension_of_the_first_tensor():
  with tf.Graph().as_default(), tf.Session() as session:
    known = program.batch_size_of({"b": tf.zeros([5, 1]), "a": tf.zeros([3, 1])})
    assert known.op.type == "Const" and known.dtype == tf.int32
    rows = tf.placeholder(tf.float32, [None, 1])
    sparse = tf.SparseTensor(tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.int64), [4, 2])
    anything = tf.placeholder(tf.float32)
    feed = {rows: [[0], [0]], anything: [0] * 6}
    assert session.run([known] + [program.batch_size_of(each) for each in (
        rows, [sparse, rows], anything)], feed) == [3, 2, 4, 6]
    with pytest.raises(program.ProgramError, match="got the scalar"):
      program.batch_size_of({"a": tf.constant(1.)})
