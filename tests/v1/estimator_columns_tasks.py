"""What tests of feature columns, canned estimators and heads run as processes."""
from __future__ import annotations

import os

import numpy as np

from tests.v1.estimator_names_tasks import near, same, values_of, write_lines

ROWS = {  # of features
  "age": [[10.0], [20.0], [40.0]], "size": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
  "word": [["a"], ["b"], ["d"]], "id": [[0], [2], [9]]}
LABELS = [[1.0], [0.0], [1.0]]


def rows(labels=LABELS):
  """One batch of the rows."""
  import tf1ps.v1 as tf
  return {name: tf.constant(values) for name, values in ROWS.items()}, tf.constant(labels)


def evaluated(tensors):
  """The values of tensors, all variables being new."""
  import tf1ps.v1 as tf
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(),
                 tf.tables_initializer()])
    return session.run(tensors)


def layer(columns):
  """The input layer of the rows."""
  import tf1ps.v1 as tf
  with tf.Graph().as_default():
    return evaluated(tf.feature_column.input_layer(rows()[0], columns)).tolist()


def dense_columns(folder):
  """Columns that an input layer takes."""
  import tf1ps.v1 as tf
  column = tf.feature_column
  age = column.numeric_column("age", normalizer_fn=lambda x: x / 10)
  same(layer([age, column.numeric_column("size", shape=(2,))]),
       [[1.0, 1.0, 2.0], [2.0, 3.0, 4.0], [4.0, 5.0, 6.0]])
  ages = column.bucketized_column(column.numeric_column("age"), boundaries=[15, 30])
  same(layer(ages), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
  same(layer(column.indicator_column(column.categorical_column_with_identity(
    "id", num_buckets=3, default_value=1))), [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
  same(layer(column.indicator_column(column.categorical_column_with_vocabulary_list(
    "word", ["a", "b"], num_oov_buckets=1))), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
  os.makedirs(folder)
  path = write_lines(folder, "words", "d a")
  same(layer(column.indicator_column(column.categorical_column_with_vocabulary_file(
    "word", path, vocabulary_size=2))), [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
  same(layer(column.indicator_column(column.categorical_column_with_hash_bucket(
    "word", hash_bucket_size=4))), [
      [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
  crossed = column.crossed_column(["word", ages], hash_bucket_size=5)
  same(layer(column.indicator_column(crossed)), [
    [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
  embedding = column.embedding_column(
    column.categorical_column_with_identity("id", 10), dimension=2, combiner="sum",
    initializer=_numbered)
  same(layer(embedding), [[0.0, 1.0], [4.0, 5.0], [18.0, 19.0]])
  with tf.Graph().as_default():
    shared = column.shared_embedding_columns(
      [column.categorical_column_with_identity(name, 10) for name in ("id", "other")],
      dimension=1, initializer=_numbered)
    found = evaluated(column.input_layer(
      {"id": tf.constant([[1]]), "other": tf.constant([[3]])}, shared)).tolist()
    same(found, [[1.0, 3.0]])
    same(len(tf.trainable_variables()), 1)


def _numbered(shape, dtype=None, partition_info=None):
  import tf1ps.v1 as tf
  return tf.reshape(tf.range(np.prod(shape), dtype=tf.float32), shape)


def sparse_columns(unused_folder):
  """linear_model, weights, sequences, and the spec of serialized examples."""
  import tf1ps.v1 as tf
  column = tf.feature_column
  words = column.categorical_column_with_vocabulary_list("word", ["a", "b", "c"])
  weighted = column.weighted_categorical_column(words, "weight")
  features = {
    "age": tf.constant([[2.0], [3.0]]),
    "word": tf.SparseTensor([[0, 0], [1, 0], [1, 1]], ["a", "b", "c"], [2, 2]),
    "weight": tf.SparseTensor([[0, 0], [1, 0], [1, 1]], [0.5, 2.0, 3.0], [2, 2])}
  collected = {}
  logits = column.linear_model(
    features, [column.numeric_column("age"), weighted], units=1, sparse_combiner="sum",
    cols_to_vars=collected)
  same(sorted(variable.op.name for variable in tf.trainable_variables()), [
    "linear_model/age/weights", "linear_model/bias_weights",
    "linear_model/word_weighted_by_weight/weights"])
  values = {"age": [[10.0]], "bias": [1.0], "word": [[100.0], [200.0], [300.0]]}
  same(sorted(str(key) for key in collected)[-1], "bias")
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for variable in tf.trainable_variables():
      name = variable.op.name.split("/")[1].split("_")[0]
      variable.load(values[name], session)
    near(session.run(logits), 71.0, 1331.0)
  spec = column.make_parse_example_spec([column.numeric_column("age"), words])
  same(spec, {"age": tf.FixedLenFeature((1,), tf.float32), "word": tf.VarLenFeature(tf.string)})
  same(tf.estimator.classifier_parse_example_spec(
    [words], label_key="y", weight_column="w"), {
      "word": tf.VarLenFeature(tf.string), "w": tf.FixedLenFeature((1,), tf.float32),
      "y": tf.FixedLenFeature((1,), tf.int64)})
  same(sorted(tf.estimator.regressor_parse_example_spec([words], "y")), ["word", "y"])


def heads(folder):
  """The heads of tf.contrib.estimator with an optimizer of tf.train, and those of tf.estimator."""
  import tf1ps.v1 as tf
  old = tf.contrib.estimator
  logits = [[0.0], [1.0], [-1.0]]

  def trained(head, logits=logits, labels=LABELS):
    def model_fn(features, labels, mode):
      scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
      return head.create_estimator_spec(
        features, mode, scale * tf.constant(logits), labels,
        optimizer=tf.train.GradientDescentOptimizer(0.5))

    one = tf.estimator.Estimator(model_fn, os.path.join(folder, head.name))
    one.train(lambda: rows(labels), steps=1)
    found = one.evaluate(lambda: rows(labels), steps=1)
    near(found["loss"], found.get("average_loss/" + head.name))
    return one, [float(values_of(one, "scale")[0])] + [
      float(found[key]) for key in sorted(found) if key not in ("loss", "global_step")]

  near(trained(old.binary_classification_head(thresholds=[0.5], name="b"))[1][:9],
       0.7563138, 0.0, 1 / 3, 2 / 3, 0.0, 0.4166667, 0.9918248, 2 / 3, 0.0)
  near(trained(old.multi_class_head(3, name="m"), [[1.0, 0.0, 0.0]] * 3, [[0], [1], [2]])[1],
       0.8786082, 1 / 3, 1.1904488)
  near(trained(old.regression_head(name="r"))[1], 0.0, 2 / 3, 2 / 3, 0.0)
  near(trained(old.poisson_regression_head(name="p"))[1], 0.4415996, 1.2132665, 2 / 3, 1.0660666)
  one, found = trained(old.logistic_regression_head(name="l"))
  near(found, 0.7563138, 0.9918248, 2 / 3, 0.5)
  near([each["predictions"] for each, _ in zip(one.predict(rows), range(3))],
       0.5, 0.680553, 0.319447)
  more = tf.estimator.add_metrics(one, lambda labels, predictions, features: {
    "mine": tf.metrics.mean(labels + features["age"] + predictions["logits"])})
  near(more.evaluate(rows, steps=1)["mine"], 24.0)

  def loss(head, logits=logits, labels=LABELS):
    spec = head.create_estimator_spec(
      {}, "train", _constants(logits), _constants(labels), train_op_fn=lambda loss: tf.no_op())
    return evaluated(spec.loss)

  new = tf.estimator
  near([loss(head()) for head in (
    new.BinaryClassHead, new.RegressionHead, new.PoissonRegressionHead,
    new.LogisticRegressionHead)], 1.1065569, 2.0, 1.695387, 1.1065569)
  near(loss(new.MultiClassHead(3), [[1.0, 0.0, 0.0]], [[1]]), 1.5514447)
  near(loss(new.MultiHead([new.RegressionHead(name="a"), new.MultiLabelHead(2, name="b")]),
            {"a": [[1.0]], "b": [[1.0, 0.0]]}, {"a": [[2.0]], "b": [[1, 0]]}), 1.5032045)


def _constants(values):
  import tf1ps.v1 as tf
  if isinstance(values, dict):
    return {name: tf.constant(value) for name, value in values.items()}
  return tf.constant(values)


def tpu_estimator(folder):
  """TPUEstimator without a TPU, as programs for BERT write it."""
  import tf1ps.v1 as tf
  tpu = tf.contrib.tpu
  first = folder + "_first"

  def model_fn(features, labels, mode, params):
    x = tf.feature_column.input_layer(features, tf.feature_column.numeric_column("x"))
    slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
    predicted = slope * x
    scaffold_fn = None
    if mode == tf.estimator.ModeKeys.PREDICT:
      return tpu.TPUEstimatorSpec(mode=mode, predictions={"y": predicted}, scaffold_fn=scaffold_fn)
    loss = tf.losses.mean_squared_error(features["y"], predicted)
    if mode == tf.estimator.ModeKeys.TRAIN:
      tf.train.init_from_checkpoint(first, {"slope": slope})
      optimizer = tf.train.GradientDescentOptimizer(params["rate"])
      if params["use_tpu"]:
        optimizer = tpu.CrossShardOptimizer(optimizer)
      train_op = optimizer.minimize(loss, tf.train.get_global_step())
      return tpu.TPUEstimatorSpec(
        mode=mode, loss=loss, train_op=train_op, scaffold_fn=scaffold_fn, host_call=None)

    def metric_fn(values, labels):
      return {"error": tf.metrics.mean_absolute_error(labels, values)}

    return tpu.TPUEstimatorSpec(mode=mode, loss=loss, eval_metrics=(
      metric_fn, [predicted, features["y"]]), scaffold_fn=scaffold_fn)

  def input_fn(params):
    same(params["batch_size"] in (2, 4), True)
    data = tf.data.Dataset.from_tensor_slices({
      "x": [[1.0], [2.0], [3.0], [4.0]], "y": [[2.0], [4.0], [6.0], [8.0]]})
    return data.repeat(5).batch(params["batch_size"], drop_remainder=True)

  with tf.Graph().as_default(), tf.Session() as session:
    session.run(tf.get_variable("slope", [], initializer=tf.ones_initializer()).initializer)
    tf.train.Saver().save(session, first)
  config = tpu.RunConfig(
    cluster=None, master=None, model_dir=folder, save_checkpoints_steps=2,
    tpu_config=tpu.TPUConfig(
      iterations_per_loop=2, num_shards=8,
      per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2))
  one = tpu.TPUEstimator(
    use_tpu=False, model_fn=model_fn, config=config, train_batch_size=2, eval_batch_size=4,
    predict_batch_size=4, params={"rate": 0.01, "use_tpu": False})
  one.train(input_fn=input_fn, max_steps=3)
  near(values_of(one, "slope"), 1.3231249)
  found = one.evaluate(input_fn=input_fn, steps=1)
  near([found["error"], found["loss"]], 1.6921878, 3.4361994)
  near([each["y"] for each in one.predict(input_fn=input_fn)][:2], 1.3231249, 2.6462498)
  assert tf.estimator.tpu.TPUEstimator is tpu.TPUEstimator


def canned(folder, begin):
  """The canned estimators whose names begin so, one step from known weights."""
  import tf1ps.v1 as tf
  e, column = tf.estimator, tf.feature_column
  size, word = column.numeric_column("size", shape=[2]), (
    column.categorical_column_with_vocabulary_list("word", ["a", "b", "d"]))
  words = column.embedding_column(word, 1, combiner="mean")
  sgd = tf.train.GradientDescentOptimizer

  class Fill(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
      for variable in tf.global_variables():
        if variable.dtype.base_dtype == tf.float32:
          variable.load(np.full(variable.shape, 0.1, np.float32), session)

  def trained(make, labels, **arguments):
    """Trains one step from all weights being 0.1; returns the loss after it and their sum."""
    one = make(model_dir=os.path.join(folder, "%s%d" % (make.__name__, len(arguments))),
               **arguments)
    one.train(lambda: rows(labels), steps=1, hooks=[Fill()])
    loss = one.evaluate(lambda: rows(labels), steps=1)["loss"]
    weights = [name for name in one.get_variable_names() if name != "global_step"]
    return [float(loss), float(sum(values_of(one, *weights)))]

  wide = {"linear_feature_columns": [word], "linear_optimizer": sgd(0.1),
          "dnn_feature_columns": [size, words], "dnn_hidden_units": [2],
          "dnn_optimizer": tf.train.AdagradOptimizer(0.1)}
  deep = {"feature_columns": [size, words], "hidden_units": [2, 2], "optimizer": sgd(0.1)}
  flat = {"feature_columns": [size, word], "optimizer": sgd(0.1)}
  many = [[0], [1], [2]]
  head = tf.contrib.estimator.regression_head()
  for make, labels, arguments, expected in (
      (e.LinearRegressor, LABELS, flat, [114.72162, -1.3]),
      (e.LinearClassifier, LABELS, flat, [1.8842552, 0.4273303]),
      (e.LinearClassifier, many, dict(flat, n_classes=3), [3.4254463, 1.8]),
      (e.LinearEstimator, LABELS, dict(flat, head=head), [3.5618389, -0.0333334]),
      (e.DNNRegressor, LABELS, deep, [0.7164112, 2.7300667]),
      (e.DNNClassifier, LABELS, deep, [1.9948132, 2.0913143]),
      (e.DNNClassifier, many, dict(deep, n_classes=3), [3.2932954, 2.6]),
      (e.DNNEstimator, LABELS, dict(deep, head=head), [0.3735089, 2.2433556]),
      (e.DNNLinearCombinedRegressor, LABELS, wide, [1.1054678, 7.7099981]),
      (e.DNNLinearCombinedClassifier, LABELS, wide, [1.8489556, 3.4797556]),
      (e.DNNLinearCombinedEstimator, LABELS, dict(wide, head=head), [0.2307896, 4.0691199]),
      (e.BaselineRegressor, LABELS, {"optimizer": sgd(0.5)}, [4.52, 1.8]),
      (e.BaselineClassifier, many, {"optimizer": sgd(0.5), "n_classes": 3}, [3.2958369, 0.3]),
      (e.BaselineEstimator, LABELS, {"optimizer": sgd(0.5), "head": head}, [2 / 9, 2 / 3])):
    if make.__name__.startswith(begin) and (begin != "DNN" or "Linear" not in make.__name__):
      near(trained(make, labels, **arguments), *expected)


def means(folder):
  """KMeans, one step from known centers."""
  import tf1ps.v1 as tf
  one = tf.estimator.experimental.KMeans(
    2, folder, [[0.0, 0.0], [4.0, 4.0]], use_mini_batch=False,
    feature_columns=[tf.feature_column.numeric_column("size", shape=[2])])
  one.train(lambda: rows()[0], steps=1)
  near(one.cluster_centers(), 1.0, 2.0, 4.0, 5.0)
