"""What tests of the names of tf.estimator run as processes; docs/drop_in.md lists these names."""
from __future__ import annotations

import functools
import glob
import os

import numpy as np

X = [[0.0], [1.0], [2.0], [3.0]]
Y = [[1.0], [3.0], [5.0], [7.0]]  # 2 x + 1


def points(batches=None):
  """The four points of a line, as one batch that repeats."""
  import tf1ps.v1 as tf
  return tf.data.Dataset.from_tensors(({"x": tf.constant(X)}, tf.constant(Y))).repeat(batches)


def line(features, labels, mode, params, **of_spec):
  """A model_fn of a line from zero, trained by gradient descent; `of_spec` goes into its result."""
  import tf1ps.v1 as tf
  slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
  offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
  x = features["x"] if isinstance(features, dict) else features
  predicted = slope * x + offset
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(
      mode, predictions={"y": predicted, "x": x}, export_outputs={
        tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY:
          tf.estimator.export.PredictOutput({"y": predicted}),
        "regress": tf.estimator.export.RegressionOutput(predicted)}, **of_spec)
  loss = tf.losses.mean_squared_error(labels, predicted)
  train_op = tf.train.GradientDescentOptimizer(params.get("rate", 0.1)).minimize(
    loss, global_step=tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(
    mode=mode, loss=loss, train_op=train_op, predictions={"y": predicted}, eval_metric_ops={
      "error": tf.metrics.mean_absolute_error(labels, predicted)}, **of_spec)


def make(folder, model_fn=line, params=None, warm_start_from=None, **config):
  """An estimator of a line."""
  import tf1ps.v1 as tf
  return tf.estimator.Estimator(
    model_fn, model_dir=folder, params=params or {}, warm_start_from=warm_start_from,
    config=tf.estimator.RunConfig(**config))


def near(found, *expected):
  """Asserts that numbers are these, to 1e-5."""
  np.testing.assert_allclose(np.ravel(found), expected, 1e-5, 1e-6)


def same(found, expected):
  """Asserts that values are equal."""
  assert found == expected, "%r is not %r" % (found, expected)


def values_of(estimator, *names):
  """The values of variables, one after the other."""
  return np.concatenate([np.ravel(estimator.get_variable_value(name)) for name in names])


def steps_of(folder):
  """The steps of the checkpoints that a folder's index lists."""
  import tf1ps.v1 as tf
  return [int(path.split("-")[-1])
          for path in tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths]


def logged(folder):
  """{tag of a summary: the steps at which a folder's event files have it}."""
  import tf1ps.v1 as tf
  found = {}
  for path in glob.glob(os.path.join(folder, "events*")):
    for event in tf.train.summary_iterator(path):
      for value in event.summary.value:
        found.setdefault(value.tag, []).append(event.step)
  return found


def count_calls(tf, calls, name):
  """A hook that counts under this name: sessions, steps and ends."""
  class Count(tf.estimator.SessionRunHook):
    def after_create_session(self, session, coord):
      calls.append(name + " session")

    def before_run(self, run_context):
      return tf.estimator.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
      assert run_values.results >= 0
      calls.append(name + " step")

    def end(self, session):
      calls.append(name + " end")

  return Count()


def config_fields(folder):
  """RunConfig: its fields, and what those for saving and logging do."""
  import tf1ps.v1 as tf
  keys = tf.estimator.ModeKeys
  assert (keys.TRAIN, keys.EVAL, keys.PREDICT) == ("train", "eval", "infer")
  plain = tf.estimator.RunConfig()
  assert (plain.save_checkpoints_secs, plain.save_checkpoints_steps) == (600, None)
  assert (plain.keep_checkpoint_max, plain.keep_checkpoint_every_n_hours) == (5, 10000)
  assert (plain.save_summary_steps, plain.log_step_count_steps) == (100, 100)
  assert plain.is_chief and plain.task_type == "worker" and plain.num_worker_replicas == 1
  assert plain.replace(save_checkpoints_steps=7).save_checkpoints_secs is None
  placed = []
  config = tf.estimator.RunConfig(
    model_dir=folder, tf_random_seed=3, save_summary_steps=3, save_checkpoints_steps=4,
    session_config=tf.ConfigProto(intra_op_parallelism_threads=2), keep_checkpoint_max=2,
    log_step_count_steps=5, device_fn=lambda op: placed.append(op.name) or "/cpu:0")
  assert config.session_config.intra_op_parallelism_threads == 2 and config.tf_random_seed == 3
  estimator = tf.estimator.Estimator(line, config=config, params={})
  assert estimator.model_dir == folder and estimator.config is not None
  estimator.train(points, steps=12)
  assert "slope" in placed
  same(steps_of(folder), [8, 12])
  same(logged(folder)["loss"], [1, 4, 7, 10])
  assert logged(folder)["global_step/sec"][0] >= 5
  estimator.train(points, max_steps=12)  # it is there already
  estimator.train(points, max_steps=13)
  same(steps_of(folder), [12, 13])
  assert sorted(estimator.get_variable_names()) == ["global_step", "offset", "slope"]
  near(values_of(estimator, "slope", "offset"), 2.010946, 0.97663)
  assert estimator.latest_checkpoint() == os.path.join(folder, "model.ckpt-13")
  by_time = make(folder + "_secs", save_checkpoints_secs=1000, keep_checkpoint_every_n_hours=1)
  by_time.train(points, steps=2)
  same(steps_of(folder + "_secs"), [0, 2])


def hooks_and_scaffold(folder):
  """All hooks of an EstimatorSpec, those of calls, and a Scaffold."""
  import tf1ps.v1 as tf
  calls = []
  count = functools.partial(count_calls, tf, calls)

  def model_fn(features, labels, mode, params, config):
    same(config.save_summary_steps, 100)
    spec = line(
      features, labels, mode, params, training_hooks=[count("all")],
      training_chief_hooks=[count("chief")], evaluation_hooks=[count("eval")],
      prediction_hooks=[count("predict")])
    return spec._replace(scaffold=tf.train.Scaffold(
      init_fn=_set_offset, saver=tf.train.Saver(max_to_keep=1), local_init_op=tf.group(
        tf.local_variables_initializer(), tf.tables_initializer())))

  def counted(steps, *names):
    one = ["session"] + ["step"] * steps + ["end"]
    same(sorted(calls), sorted("%s %s" % (name, call) for name in names for call in one))
    del calls[:]

  estimator = make(folder, model_fn, save_checkpoints_steps=1)
  estimator.train(points, steps=2, hooks=[count("own")])
  counted(2, "all", "chief", "own")
  same(steps_of(folder), [2])
  near(values_of(estimator, "offset", "slope"), 1.66, 1.64)
  metrics = estimator.evaluate(lambda: points(2), hooks=[count("more")], name="x")
  counted(2, "eval", "more")
  same(sorted(metrics), ["error", "global_step", "loss"])
  near([metrics["error"], metrics["loss"]], 0.36, 0.1764)
  same(logged(os.path.join(folder, "eval_x")), {
    "error": [2], "loss": [2], "checkpoint_path": [2]})
  same(len(list(estimator.predict(lambda: points(1), hooks=[count("more")]))), 4)
  counted(1, "predict", "more")


def _set_offset(scaffold, session):
  import tf1ps.v1 as tf
  with session.graph.as_default():
    variable = [one for one in tf.global_variables() if one.op.name == "offset"][0]
  variable.load(1.0, session)


def predictions(folder):
  """predict: keys, batches, a checkpoint; evaluate: steps, a checkpoint."""
  import tf1ps.v1 as tf
  estimator = make(folder, save_checkpoints_steps=1)
  estimator.train(points, steps=2)
  one = next(estimator.predict(lambda: points(1), predict_keys=["y"]))
  assert sorted(one) == ["y"]
  found = estimator.predict(lambda: points(1), predict_keys="y", yield_single_examples=False)
  near(next(found)["y"], 0.93, 2.9, 4.87, 6.84)
  older = estimator.predict(
    lambda: points(1), checkpoint_path=os.path.join(folder, "model.ckpt-1"))
  near([one["y"] for one in older], 0.8, 2.5, 4.2, 5.9)
  assert estimator.evaluate(points, steps=3)["global_step"] == 2
  older = estimator.evaluate(
    points, steps=1, checkpoint_path=os.path.join(folder, "model.ckpt-1"))
  assert older["global_step"] == 1
  assert len(list(estimator.predict(lambda: tf.data.Dataset.from_tensor_slices(
    {"x": X}).batch(3)))) == 4


def exports(folder):
  """export_saved_model, its older names and receivers: plain sessions load the result."""
  import tf1ps.v1 as tf
  estimator = make(folder)
  estimator.train(points, steps=1)
  raw = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [None, 1])}, default_batch_size=None)
  parsing = tf.estimator.export.build_parsing_serving_input_receiver_fn(
    {"x": tf.FixedLenFeature([1], tf.float32)})

  def own():
    x = tf.placeholder(tf.float32, [None], name="x")
    return tf.estimator.export.ServingInputReceiver({"x": x[:, None]}, {"x": x})

  def bare():
    x = tf.placeholder(tf.float32, [None, 1])
    return tf.estimator.export.TensorServingInputReceiver(x, x)

  asset = os.path.join(folder, "words.txt")
  with open(asset, "w") as file:
    file.write("a\n")
  path = estimator.export_saved_model(folder + "_raw", raw, assets_extra={"words.txt": asset})
  near(_serve(path, [[2.0]]), 4.2)
  assert os.path.exists(os.path.join(os.fsdecode(path), "assets.extra", "words.txt"))
  near(_serve(estimator.export_savedmodel(folder + "_old", own, as_text=True), [2.0]), 4.2)
  near(_serve(estimator.export_savedmodel(
    folder + "_bare", bare, strip_default_attrs=True), [[2.0]]), 4.2)
  example = tf.train.Example()
  example.features.feature["x"].float_list.value.append(3.0)
  path = estimator.export_saved_model(folder + "_parsing", parsing)
  near(_serve(path, [example.SerializeToString()]), 5.9)
  near(_serve(path, [example.SerializeToString()], "regress"), 5.9)
  path = estimator.experimental_export_all_saved_models(folder + "_all", {
    tf.estimator.ModeKeys.PREDICT: raw,
    tf.estimator.ModeKeys.EVAL: tf.estimator.experimental.build_raw_supervised_input_receiver_fn(
      {"x": tf.placeholder(tf.float32, [None, 1])}, tf.placeholder(tf.float32, [None, 1]))})
  near(_serve(path, [[2.0]]), 4.2)


def _serve(path, values, signature="serving_default"):
  """The output of a SavedModel for values of its only input."""
  import tf1ps.v1 as tf
  with tf.Session(graph=tf.Graph()) as session:
    found = tf.saved_model.loader.load(session, [tf.saved_model.tag_constants.SERVING], path)
    signature = found.signature_def[signature]
    (given,), (output,) = signature.inputs.values(), signature.outputs.values()
    return session.run(output.name, {given.name: values})


def exporters(folder):
  """train_and_evaluate with the three exporters, and specs with each of their arguments."""
  import tf1ps.v1 as tf
  receive = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"x": tf.placeholder(tf.float32, [None, 1])})
  best = tf.estimator.BestExporter(
    name="best", serving_input_receiver_fn=receive, exports_to_keep=1,
    event_file_pattern="eval_dev/*.tfevents.*", compare_fn=_has_less_loss)
  tf.estimator.train_and_evaluate(
    make(folder, save_checkpoints_steps=2),
    tf.estimator.TrainSpec(input_fn=points, max_steps=6, hooks=[]),
    tf.estimator.EvalSpec(
      input_fn=points, steps=1, name="dev", hooks=[], start_delay_secs=0, throttle_secs=0,
      exporters=[best, tf.estimator.LatestExporter("latest", receive, exports_to_keep=2),
                 tf.estimator.FinalExporter("final", receive)]))
  same(logged(os.path.join(folder, "eval_dev"))["loss"], [2, 4, 6])
  found = {name: sorted(os.listdir(os.path.join(folder, "export", name)))
           for name in ("best", "latest", "final")}
  same([len(found[name]) for name in ("best", "latest", "final")], [1, 2, 1])
  for name in found:
    near(_serve(os.path.join(folder, "export", name, found[name][-1]), [[2.0]]), 4.997647)


def _has_less_loss(best_eval_result, current_eval_result):
  return current_eval_result["loss"] < best_eval_result["loss"]


def warm_starts(folder):
  """By a folder, by a checkpoint, and by WarmStartSettings with other names and vocabularies."""
  import tf1ps.v1 as tf
  make(folder, save_checkpoints_steps=1).train(points, steps=2)
  again = make(folder + "_folder", warm_start_from=folder, params={"rate": 0.0})
  again.train(points, steps=1)
  near(values_of(again, "slope", "offset"), 1.97, 0.93)
  again = make(folder + "_path", params={"rate": 0.0},
               warm_start_from=os.path.join(folder, "model.ckpt-1"))
  again.train(points, steps=1)
  near(values_of(again, "slope", "offset"), 1.7, 0.8)
  again = make(folder + "_settings", params={"rate": 0.0},
               warm_start_from=tf.estimator.WarmStartSettings(
                 folder, vars_to_warm_start="offset",
                 var_name_to_prev_var_name={"offset": "slope"}))
  again.train(points, steps=1)
  near(values_of(again, "slope", "offset"), 0.0, 1.97)
  old, new = write_lines(folder, "old", "a b"), write_lines(folder, "new", "b c a")
  words = [tf.feature_column.categorical_column_with_vocabulary_file("word", path)
           for path in (old, new)]

  def batch():
    return {"word": tf.constant(["a", "b"])}, tf.constant([[2.0], [4.0]])

  first = tf.estimator.LinearRegressor(
    words[:1], folder + "_words", optimizer=tf.train.GradientDescentOptimizer(0.5))
  first.train(batch, steps=1)
  name = "linear/linear_model/word/weights"
  weights = values_of(first, name)
  near(weights, 2.0, 4.0)
  second = tf.estimator.LinearRegressor(
    words[1:], folder + "_more", optimizer=tf.train.GradientDescentOptimizer(0.0),
    warm_start_from=tf.estimator.WarmStartSettings(
      folder + "_words", vars_to_warm_start=".*word.*", var_name_to_vocab_info={
        name: tf.estimator.VocabInfo(new, 3, 0, old, 2, tf.zeros_initializer())}))
  second.train(batch, steps=1)
  near(values_of(second, name), 4.0, 0.0, 2.0)


def write_lines(folder, name, words):
  """Writes words one below the other; returns the path."""
  path = os.path.join(folder, name)
  with open(path, "w") as file:
    file.write("\n".join(words.split()) + "\n")
  return path


def inputs(folder):
  """estimator.inputs of numpy, and of pandas where it is installed."""
  import tf1ps.v1 as tf
  numpy_input_fn = tf.estimator.inputs.numpy_input_fn
  arrays = {"x": np.arange(5.0), "z": np.arange(10).reshape(5, 2)}
  feed = numpy_input_fn(arrays, np.arange(5) * 2, batch_size=2, num_epochs=1, shuffle=False)
  batches = _all_batches(feed)
  same([one[0]["x"].tolist() for one in batches], [[0.0, 1.0], [2.0, 3.0], [4.0]])
  same(batches[1][0]["z"].tolist(), [[4, 5], [6, 7]])
  same([one[1].tolist() for one in batches], [[0, 2], [4, 6], [8]])
  mixed = _all_batches(numpy_input_fn(
    {"x": np.arange(6)}, batch_size=4, num_epochs=2, shuffle=True, queue_capacity=10,
    num_threads=1))
  same(sorted(value for one in mixed for value in one["x"]), sorted(2 * list(range(6))))
  estimator = make(folder)
  estimator.train(numpy_input_fn(
    {"x": np.array(X, np.float32)}, np.array(Y, np.float32), batch_size=4, num_epochs=None,
    shuffle=False), steps=2)
  near(values_of(estimator, "slope", "offset"), 1.97, 0.93)
  found = estimator.predict(tf.estimator.inputs.numpy_input_fn(
    x={"x": np.array(X, np.float32)}, shuffle=False))
  near([one["y"] for one in found], 0.93, 2.9, 4.87, 6.84)
  try:
    import pandas
  except ImportError:
    return
  frame = pandas.DataFrame({"x": [1.0, 2.0, 3.0], "word": ["a", "b", "c"]})
  (features, labels), = _all_batches(tf.estimator.inputs.pandas_input_fn(
    x=frame, y=pandas.Series([4, 5, 6]), num_epochs=1, shuffle=False))
  same([features["x"].tolist(), features["word"].tolist(), labels.tolist()],
       [[1.0, 2.0, 3.0], [b"a", b"b", b"c"], [4, 5, 6]])


def _all_batches(input_fn):
  import tf1ps.v1 as tf
  found = []
  with tf.Graph().as_default():
    batch = input_fn()
    with tf.train.MonitoredSession() as session:
      while not session.should_stop():
        try:
          found.append(session.run(batch))
        except tf.errors.OutOfRangeError:
          break
  return found




def early_stopping(folder):
  """The hooks that stop by evaluations, by a function or at a checkpoint; both their namespaces.

  TensorFlow 1.15 has moved them already.
  """
  import tf1ps.v1 as tf
  evaluations = tf.summary.FileWriter(os.path.join(folder, "eval"))
  for step, loss in ((1, 3.0), (2, 2.0), (4, 2.5), (6, 2.5)):
    evaluations.add_summary(tf.Summary(value=[tf.Summary.Value(tag="m", simple_value=loss)]), step)
  evaluations.close()
  namespaces = [("new", tf.estimator.experimental)]
  if not tf.__version__.startswith("1."):
    namespaces.append(("old", tf.contrib.estimator))
  for kind, names in namespaces:
    def stops(name, limits, names=names, **more):
      made = [getattr(names, name)(make(folder), "m", limit, run_every_secs=None,
                                   run_every_steps=1, **more) for limit in limits]
      return [hook._should_stop_fn() for hook in made]

    def trained(name, make_hook, kind=kind):
      estimator = make("%s_%s_%s" % (folder, name, kind))
      estimator.train(points, steps=5, hooks=[make_hook(estimator)])
      return estimator.get_variable_value("global_step")

    same(stops("stop_if_higher_hook", [2.6, 3.0]), [True, False])
    same(stops("stop_if_higher_hook", [2.6], min_steps=2), [False])
    same(stops("stop_if_lower_hook", [2.1, 2.0]), [True, False])
    same(stops("stop_if_no_decrease_hook", [4, 5]), [True, False])
    same(stops("stop_if_no_increase_hook", [5, 6]), [True, False])
    calls, seen = [], []
    same(trained("early", lambda estimator, names=names, calls=calls:
                 names.make_early_stopping_hook(
                   estimator, lambda: calls.append(1) or len(calls) == 3, run_every_secs=None,
                   run_every_steps=1)), 3)
    same(trained("memory", lambda estimator, names=names, seen=seen: names.InMemoryEvaluatorHook(
      estimator, lambda: points(1), hooks=[count_calls(tf, seen, "seen")], every_n_iter=2)), 5)
    same(seen.count("seen step"), 4)  # before the first step, after steps 2 and 4, at the end
    same(trained("stop", lambda estimator, names=names: names.make_stop_at_checkpoint_step_hook(
      estimator, 3, wait_after_file_check_secs=0)), 3)


def files_of_the_package(unused_folder):
  """What tf1ps-run gives for the files of tensorflow.python.estimator."""
  import tf1ps.v1 as tf
  import tf1ps.v1.estimator.python.estimator as estimator_file
  from tf1ps.v1.estimator.python import run_config
  from tf1ps.v1.estimator.python.canned.dnn import DNNClassifier
  from tf1ps.v1.estimator.python.canned.prediction_keys import PredictionKeys
  from tf1ps.v1.estimator.python.export.export_output import PredictOutput
  from tf1ps.v1.estimator.python.inputs.numpy_io import numpy_input_fn
  from tf1ps.v1.estimator.python.model_fn import EstimatorSpec
  same([estimator_file.Estimator, run_config.RunConfig, DNNClassifier, PredictOutput,
        numpy_input_fn, EstimatorSpec],
       [tf.estimator.Estimator, tf.estimator.RunConfig, tf.estimator.DNNClassifier,
        tf.estimator.export.PredictOutput, tf.estimator.inputs.numpy_input_fn,
        tf.estimator.EstimatorSpec])
  same(PredictionKeys.CLASS_IDS, "class_ids")


def keras_model(folder):
  """tf.keras.estimator.model_to_estimator, before the program has used tf.estimator."""
  import tf1ps.v1 as tf
  model = tf.keras.Sequential([
    tf.keras.layers.Dense(1, input_shape=(1,), name="dense", kernel_initializer="zeros")])
  model.compile("sgd", "mse")  # its rate is 0.01
  estimator = tf.keras.estimator.model_to_estimator(model, model_dir=folder)
  batches = tf.data.Dataset.from_tensors
  estimator.train(lambda: batches((X, Y)).repeat(2))
  near(estimator.evaluate(lambda: batches((X, Y)))["loss"], 14.781273)
  tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(lambda: batches((X, Y)).repeat(), max_steps=4),
    tf.estimator.EvalSpec(lambda: batches((X, Y))))
  same(steps_of(folder)[-1], 4)


def keras_optimizers(folder):
  """Canned estimators with them are TensorFlow 2's; those with one of tf.train are not."""
  import tf1ps.v1 as tf
  columns = [tf.feature_column.numeric_column("x")]
  sgd = functools.partial(tf.keras.optimizers.SGD, 0.05)
  for name, make_one, arguments in (
      ("linear", tf.estimator.LinearRegressor, {"feature_columns": columns, "optimizer": sgd()}),
      ("called", tf.estimator.LinearRegressor, {
        "feature_columns": columns, "optimizer": lambda: sgd()}),
      ("wide", tf.estimator.DNNLinearCombinedRegressor, {
        "linear_feature_columns": columns, "linear_optimizer": sgd(),
        "dnn_feature_columns": columns, "dnn_hidden_units": [2], "dnn_optimizer": sgd()})):
    made = make_one(model_dir=os.path.join(folder, name), **arguments)
    assert type(made).__name__.endswith("V2"), type(made)
    made.train(points, max_steps=20)
    assert made.evaluate(points, steps=1)["average_loss"] < 21.0  # of zeros
  stock = tf.estimator.LinearRegressor(columns, optimizer=tf.train.GradientDescentOptimizer(0.05))
  assert type(stock) is tf.estimator.LinearRegressor
