from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.program import model, variable_kind
from tf1ps.program.model import ModelSpec


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default():
    yield


def constant(*shape, dtype=tf.float32):
  return tf.zeros(shape, dtype)


@pytest.mark.parametrize("mode, make", [
    ("train", lambda: ModelSpec(loss=constant())),
    ("train", lambda: ModelSpec(constant(), optimizer=tf.train.AdamOptimizer())),
    ("train", lambda: ModelSpec(constant(dtype=tf.float64), metrics={"loss": 3})),  # not used there
    ("eval", lambda: ModelSpec(loss=constant())),
    ("eval", lambda: ModelSpec(metrics={"a": tf.metrics.mean(constant(3))})),
    ("eval", lambda: ModelSpec(constant(), metrics={})),
    ("predict", lambda: ModelSpec(predictions=constant(3))),
    ("predict", lambda: ModelSpec(loss=3, predictions={"a": constant(3), "b": constant(3, 4)})),
])
def test_good_specs(mode, make):
  spec = make()
  assert model.check_model_spec(spec, mode) is spec


@pytest.mark.parametrize("mode, make, expected", [
    ("test", lambda: None, "mode must be one of train, eval, predict, got 'test'"),
    ("train", lambda: None, "must return a tf1ps.ModelSpec, got None: is its `return`"),
    ("train", lambda: (constant(),), r"must return a tf1ps.ModelSpec, got \(<tf.Tensor"),
    ("train", lambda: ModelSpec(), "returned no loss in mode 'train'"),
    ("train", lambda: ModelSpec(0.5), "loss must be a scalar float tensor, got 0.5"),
    ("train", lambda: ModelSpec(constant(3)), r"must be a scalar, got shape \(3,\): take its mean"),
    ("eval", lambda: ModelSpec(constant(dtype=tf.int32)), "loss must be of a float type, got i"),
    ("train", lambda: ModelSpec(constant(), optimizer="adam"), "Optimizer or None, got 'adam'"),
    ("eval", lambda: ModelSpec(predictions=constant(3)), "neither a loss nor metrics in mode"),
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
def test_wrong_specs_are_refused(mode, make, expected):
  with pytest.raises(model.ModelSpecError, match=expected):
    model.check_model_spec(make(), mode)


def test_a_single_prediction_has_a_name():
  tensor, other = constant(3), {"a": constant(3)}
  assert model.predictions_by_name(ModelSpec(predictions=tensor)) == {"prediction": tensor}
  assert model.predictions_by_name(ModelSpec(predictions=other)) is other


@pytest.mark.parametrize("kind", variable_kind.KINDS)
def test_what_tf_metrics_returns_is_good(kind):
  label, guess = tf.constant([1, 0, 1, 1]), tf.constant([1, 0, 0, 1])
  with variable_kind.kind_scope(kind):
    metrics = {function.__name__: function(label, guess) for function in (
        tf.metrics.accuracy, tf.metrics.precision, tf.metrics.recall, tf.metrics.true_positives,
        tf.metrics.auc, tf.metrics.mean_squared_error)}
  model.check_model_spec(ModelSpec(metrics=metrics), "eval")
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    session.run([update for _, update in metrics.values()])
    values = session.run({name: value for name, (value, _) in metrics.items()})
  assert values["accuracy"] == 0.75 and values["true_positives"] == 2


def test_the_loss_is_weighted_by_the_size_of_the_batch():
  loss, size = tf.placeholder(tf.float64, []), tf.placeholder(tf.int32, [])
  assert list(model.metrics_with_loss(ModelSpec(metrics={"a": 1}), size)) == ["a"]
  value, update = model.metrics_with_loss(ModelSpec(loss=loss), size)["loss"]
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    session.run(update, {loss: 2., size: 3})
    session.run(update, {loss: 6., size: 1})
    assert session.run(value) == 3.
