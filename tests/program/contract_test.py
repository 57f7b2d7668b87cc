from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import TooLargeError, constants
from tf1ps.pipeline import iterators
from tf1ps.pipeline.shard import Shard
from tf1ps.program import contract
from tf1ps.program.contract import ModelSpec

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
  with pytest.raises(contract.ProgramError) as error:
    contract.load_program(name)
  return str(error.value)


def test_a_path_is_imported_like_python_would(tmp_path):
  write(tmp_path, "p_helper.py", "BATCH = 7\n")
  path = write(tmp_path, "p_main.py", "from absl import flags\nimport p_helper\n"
               "flags.DEFINE_integer('p_flag', p_helper.BATCH, '')\n" + GOOD)
  loaded = contract.load_program(path)
  from absl import flags
  assert flags.FLAGS["p_flag"].value == 7
  assert loaded.name == path and loaded.module is sys.modules["p_main"]
  assert loaded.input_fn is loaded.module.input_fn and loaded.model_fn is loaded.module.model_fn
  assert contract.load_program(os.path.relpath(path)).module is loaded.module
  delattr(flags.FLAGS, "p_flag")


def test_a_module_is_imported_by_its_name(tmp_path):
  write(tmp_path, "p_package/__init__.py", "")
  write(tmp_path, "p_package/good.py", GOOD)
  sys.path.insert(0, str(tmp_path))
  loaded = contract.load_program("p_package.good")
  assert loaded.module is sys.modules["p_package.good"]
  assert refused("p_package.goood") == (
      "the module 'p_package.goood' does not exist; did you mean p_package.good?")
  assert refused("p_pakkage.good") == (
      "the module 'p_pakkage.good' does not exist; did you mean p_package?")
  assert refused("zqx") == "the module 'zqx' does not exist"


@pytest.mark.parametrize("text", ["tf.constant([1.])", "tf.Variable(1.)"])
def test_a_tensor_of_the_import_is_refused(tmp_path, text):
  path = write(tmp_path, "p_tensor_%s.py" % text[3], (
    "import tensorflow.compat.v1 as tf\nMEAN = %s\n" % text) + GOOD)
  assert "'MEAN' is a tensor that was made while the program was imported" in refused(path)


def test_a_missing_file_names_the_nearest(tmp_path):
  path = write(tmp_path, "p_digits.py", GOOD)
  wrong = path.replace("digits", "digit")
  assert refused(wrong) == f"the program {wrong} does not exist; did you mean {path}?"
  assert refused(os.path.join(os.sep, "nowhere", "x.py")) == (
    "the program /nowhere/x.py does not exist")
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
  with tf.Graph().as_default(), pytest.raises(contract.ProgramError) as caught:
    contract.load_program(path)
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
    ("def input_fn(mode): pass", ": input_fn(mode) must take (mode, shard), and every other "
     "parameter must have a default: too many positional arguments"),
    ("def input_fn(mode, shard, size): pass", ": input_fn(mode, shard, size) must take (mode, "
     "shard), and every other parameter must have a default: missing a required argument: 'size'"),
    ("def input_fn(shard, mode): pass",
     ": input_fn(shard, mode) takes its parameters in another order than (mode, shard)"),
])
def test_missing_and_wrong_functions_are_refused(tmp_path, text, expected):
  path = write(tmp_path, "p_wrong.py", text)
  assert refused(path) == path + (" " if expected.startswith("has") else "") + expected


def test_more_parameters_with_defaults_and_other_names_are_fine(tmp_path):
  contract.load_program(write(
      tmp_path, "p_more.py", "def input_fn(mode, shard, size=3, *, seed=None): pass\n"
      "def model_fn(features, _, mode, **more): pass\n"))


def build(result, mode="train"):
  return contract.build_input(
      contract.Program("p", None, lambda mode, shard: result, None), mode, Shard(mode=mode))


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
    (lambda: None, r"must return \(features, labels\), or .*, got None: is its `return` missing\?"),
    (lambda: (tf.constant([1.]),), r"or features alone \(a tensor or a dict\), got \(<tf.Tensor"),
    (lambda: tf.data.Dataset.from_tensors((1, 2, 3)), r"must be pairs \(features, labels\), or"),
    (lambda: tf.data.make_initializable_iterator(tf.data.Dataset.range(3)),
     r"got an iterator: return its `get_next\(\)`"),
    (lambda: tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)), "got an iterator: return"),
    (lambda: ({}, None), "returned features without a tensor: {}"),
    (lambda: (tf.constant([1.]), {"a": 3}), "among the labels is 3"),
])
def test_another_input_is_refused(result, expected):
  with tf.Graph().as_default(), pytest.raises(contract.ProgramError, match=expected):
    build(result())


@pytest.mark.parametrize("wrap", [lambda x: x, tf.data.Dataset.from_tensors])
def test_features_alone_are_a_tensor_or_a_dict(wrap):
  with tf.Graph().as_default():
    features, labels = build(wrap(tf.constant([[1.], [2.]])))
    assert features.shape.as_list() == [2, 1] and labels is None
    features, labels = build(wrap({"a": tf.constant([1.]), "b": tf.constant([2.])}))
    assert sorted(features) == ["a", "b"] and labels is None


@pytest.mark.parametrize("mode, advice", [
    ("predict", r"return ModelSpec\(predictions=...\) before it uses them"),
    ("eval", r"input_fn must return \(features, labels\)"),
])
def test_a_model_that_needs_labels_where_there_are_none(graph, mode, advice):
  def model_fn(features, labels, mode):
    return contract.ModelSpec(tf.reduce_mean(features - labels), features)

  program = contract.Program("p", None, None, model_fn)
  expected = "fails in mode '%s', where the labels are None: %s" % (mode, advice)
  with pytest.raises(contract.ModelSpecError, match=expected):
    contract.build_model(program, tf.constant([1.]), None, mode)
  contract.build_model(program, tf.constant([1.]), tf.constant([1.]), mode)


def test_batch_size_is_the_first_dimension_of_the_first_tensor():
  with tf.Graph().as_default(), tf.Session() as session:
    known = contract.batch_size_of({"b": tf.zeros([5, 1]), "a": tf.zeros([3, 1])})
    assert known.op.type == "Const" and known.dtype == tf.int32
    rows = tf.placeholder(tf.float32, [None, 1])
    sparse = tf.SparseTensor(tf.placeholder(tf.int64, [None, 2]), tf.placeholder(tf.int64), [4, 2])
    anything = tf.placeholder(tf.float32)
    feed = {rows: [[0], [0]], anything: [0] * 6}
    assert session.run([known] + [contract.batch_size_of(each) for each in (
        rows, [sparse, rows], anything)], feed) == [3, 2, 4, 6]
    with pytest.raises(contract.ProgramError, match="got the scalar"):
      contract.batch_size_of({"a": tf.constant(1.)})


@pytest.fixture
def graph():
  with tf.Graph().as_default():
    yield


def constant(*shape, dtype=tf.float32):
  return tf.zeros(shape, dtype)


@pytest.mark.parametrize("mode, make", [
    ("train", lambda: ModelSpec(loss=constant())),
    ("train", lambda: ModelSpec(constant(), optimizer=tf.train.AdamOptimizer())),
    ("train", lambda: ModelSpec(constant(), hooks=[tf.train.SessionRunHook()])),
    ("train", lambda: ModelSpec(constant(), train_op=tf.no_op())),
    ("train", lambda: ModelSpec(constant(), train_op=constant())),
    ("train", lambda: ModelSpec(constant(dtype=tf.float64), metrics={"loss": 3})),  # not used there
    ("eval", lambda: ModelSpec(loss=constant())),
    ("eval", lambda: ModelSpec(metrics={"a": tf.metrics.mean(constant(3))})),
    ("eval", lambda: ModelSpec(constant(), metrics={})),
    ("predict", lambda: ModelSpec(predictions=constant(3))),
    ("predict", lambda: ModelSpec(loss=3, predictions={"a": constant(3), "b": constant(3, 4)})),
])
def test_good_specs(graph, mode, make):
  spec = make()
  assert contract.check_model_spec(spec, mode) is spec


@pytest.mark.parametrize("mode, make, expected", [
    ("test", lambda: None, "mode must be one of train, eval, predict, got 'test'"),
    ("train", lambda: None, "must return a tf1ps.ModelSpec, got None: is its `return`"),
    ("train", lambda: (constant(),), r"must return a tf1ps.ModelSpec, got \(<tf.Tensor"),
    ("train", lambda: ModelSpec(), "returned no loss in mode 'train'"),
    ("train", lambda: ModelSpec(0.5), "loss must be a scalar float tensor, got 0.5"),
    ("train", lambda: ModelSpec(constant(3)), r"must be a scalar, got shape \(3,\): take its mean"),
    ("eval", lambda: ModelSpec(constant(dtype=tf.int32)), "loss must be of a float type, got i"),
    ("train", lambda: ModelSpec(constant(), optimizer="adam"), "Optimizer or None, got 'adam'"),
    ("train", lambda: ModelSpec(constant(), train_op=3), "train_op must be an operation.* got 3"),
    ("train", lambda: ModelSpec(
      constant(), optimizer=tf.train.AdamOptimizer(), train_op=tf.no_op()), "both an optimizer"),
    ("train", lambda: ModelSpec(constant(), hooks=tf.train.SessionRunHook()), "must be a list of"),
    ("train", lambda: ModelSpec(constant(), hooks=["stop"]), "among them is 'stop'"),
    ("eval", lambda: ModelSpec(predictions=constant(3)), "neither a loss nor metrics in mode"),
    ("eval", lambda: ModelSpec(constant(), eval_steps=0), "eval_steps must be an int .* got 0"),
    ("eval", lambda: ModelSpec(metrics=[1]), r"metrics must be a dict of name to .* got \[1\]"),
    ("eval", lambda: ModelSpec(metrics={"a": constant()}), r"metric 'a' must be \(value, up"),
    ("eval", lambda: ModelSpec(metrics={"a": (1., constant())}), r"metric 'a' must be \(value"),
    ("eval", lambda: ModelSpec(metrics={"a": (constant(), 1.)}), r"metric 'a' must be \(value"),
    ("eval", lambda: ModelSpec(metrics={"a": (constant(3), constant())}), r"got shape \(3,"),
    ("eval", lambda: ModelSpec(metrics={"loss": (constant(), constant())}), "not contain .loss"),
    ("eval", lambda: ModelSpec(metrics={3: (constant(), constant())}), "must be a string and not"),
    ("predict", lambda: ModelSpec(loss=constant()), "returned no predictions in mode 'predict'"),
    ("predict", lambda: ModelSpec(predictions={}), "predictions is an empty dict"),
    ("predict", lambda: ModelSpec(predictions={"a": 3}), "prediction 'a' must be a tensor, got 3"),
    ("predict", lambda: ModelSpec(predictions=[3]), r"'prediction' must be a tensor, got \[3"),
    ("predict", lambda: ModelSpec(predictions={"": constant(3)}), "must be a string and not empty"),
    ("predict", lambda: ModelSpec(predictions={"a": constant()}), "'a' is a scalar: its first dim"),
])
def test_wrong_specs_are_refused(graph, mode, make, expected):
  with pytest.raises(contract.ModelSpecError, match=expected):
    contract.check_model_spec(make(), mode)


def test_arrays_that_no_graph_can_hold_are_refused(graph, monkeypatch):
  monkeypatch.setattr(constants, "LARGEST_GRAPH", 4 << 20)
  arrays = np.zeros([1 << 20], np.float32), np.zeros([1 << 20], np.int8)
  program = contract.Program(
    "arrays", None, lambda mode, shard: tf.data.Dataset.from_tensor_slices(arrays).batch(2), None)
  with pytest.raises(TooLargeError, match="the graph has 5 MB of constants, and can hold"):
    contract.build_input(program, "train", Shard())
  program = contract.Program(
    "arrays", None, None, lambda features, labels, mode: tf.constant(arrays[0]))
  with tf.Graph().as_default(), pytest.raises(TooLargeError, match="graph has 9 MB of constants"):
    tf.constant(np.arange(5 << 18, dtype=np.float32))
    contract.build_model(program, None, None, "train")


@pytest.mark.parametrize("kind", ["resource", "ref"])
def test_a_trainable_variable_is_global(graph, kind):
  with tf.variable_scope(tf.get_variable_scope(), use_resource=kind == "resource"):
    w = tf.get_variable("w", [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with pytest.raises(contract.ModelSpecError, match="variable w is trainable, but not global"):
      contract.check_variables(ModelSpec(tf.square(w)))


def test_moving_averages_that_nothing_updates_are_refused(graph):
  layer = tf.keras.layers.BatchNormalization()
  used = tf.reduce_mean(layer(constant(4, 3), training=False))
  contract.check_variables(ModelSpec(used))  # a layer that is not trained
  left_out = tf.reduce_mean(layer(constant(4, 3), training=True))
  with pytest.raises(contract.ModelSpecError) as error:
    contract.check_variables(ModelSpec(left_out))
  assert "moving averages batch_normalization/moving_mean, batch_normalization/moving_variance, " \
      in str(error.value)
  assert "tf_keras, and \"import tf1ps.v1 as tf\" or TF_USE_LEGACY_KERAS=1" in str(error.value)


@pytest.mark.parametrize("kind", ["resource", "ref"])
def test_moving_averages_whose_updates_are_left_out_are_refused(graph, kind):
  # A fused layer of Keras reads its averages in each step.
  with tf.variable_scope(tf.get_variable_scope(), use_resource=kind == "resource"):
    mean = tf.get_variable("norm/moving_mean", [], trainable=False,
                           initializer=tf.zeros_initializer())
  loss = tf.identity(mean)
  contract.check_variables(ModelSpec(loss))  # a layer that is not trained
  update = tf.assign_sub(mean, 0.5)
  with pytest.raises(contract.ModelSpecError, match="does not update the moving averages norm/"):
    contract.check_variables(ModelSpec(loss))
  contract.check_variables(ModelSpec(loss, train_op=tf.group(update)))


@pytest.mark.parametrize("kind", ["resource", "ref"])
def test_moving_averages_that_are_updated_are_good(graph, kind):
  with tf.variable_scope(tf.get_variable_scope(), use_resource=kind == "resource"):
    mean = tf.get_variable("norm/moving_mean", [], trainable=False)
    variance = tf.get_variable("norm/moving_variance", [], trainable=False)
  tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign(1.0))
  with tf.control_dependencies([variance.assign(2.0)]):
    loss = constant()
  contract.check_variables(ModelSpec(loss))


def test_a_single_prediction_has_a_name(graph):
  tensor, other = constant(3), {"a": constant(3)}
  assert contract.predictions_by_name(ModelSpec(predictions=tensor)) == {"prediction": tensor}
  assert contract.predictions_by_name(ModelSpec(predictions=other)) is other


@pytest.mark.parametrize("kind", ["resource", "ref"])
def test_what_tf_metrics_returns_is_good(graph, kind):
  label, guess = tf.constant([1, 0, 1, 1]), tf.constant([1, 0, 0, 1])
  with tf.variable_scope(tf.get_variable_scope(), use_resource=kind == "resource"):
    metrics = {function.__name__: function(label, guess) for function in (
        tf.metrics.accuracy, tf.metrics.precision, tf.metrics.recall, tf.metrics.true_positives,
        tf.metrics.auc, tf.metrics.mean_squared_error)}
  contract.check_model_spec(ModelSpec(metrics=metrics), "eval")
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    session.run([update for _, update in metrics.values()])
    values = session.run({name: value for name, (value, _) in metrics.items()})
  assert values["accuracy"] == 0.75 and values["true_positives"] == 2


def test_the_loss_is_weighted_by_the_size_of_the_batch(graph):
  loss, size = tf.placeholder(tf.float64, []), tf.placeholder(tf.int32, [])
  assert list(contract.metrics_with_loss(ModelSpec(metrics={"a": 1}), size)) == ["a"]
  value, update = contract.metrics_with_loss(ModelSpec(loss=loss), size)["loss"]
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    session.run(update, {loss: 2., size: 3})
    session.run(update, {loss: 6., size: 1})
    assert session.run(value) == 3.
