"""What a process of its own shows: importing tf1ps.v1 changes TensorFlow's mode."""
from __future__ import annotations

import operator

from tf1ps.doctor import name_tables

# What TensorFlow 1.15 has: {namespace: names}.
ESTIMATOR_OF_1_15 = {
  "tf.estimator":
    "BaselineClassifier BaselineEstimator BaselineRegressor BestExporter BinaryClassHead "
    "BoostedTreesClassifier BoostedTreesEstimator BoostedTreesRegressor CheckpointSaverHook "
    "CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier "
    "DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor Estimator EstimatorSpec "
    "EvalSpec Exporter FeedFnHook FinalExporter FinalOpsHook GlobalStepWaiterHook Head "
    "LatestExporter LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook "
    "LogisticRegressionHead ModeKeys MultiClassHead MultiHead MultiLabelHead "
    "NanLossDuringTrainingError NanTensorHook PoissonRegressionHead ProfilerHook RegressionHead "
    "RunConfig SecondOrStepTimer SessionRunArgs SessionRunContext SessionRunHook SessionRunValues "
    "StepCounterHook StopAtStepHook SummarySaverHook TrainSpec VocabInfo WarmStartSettings "
    "add_metrics classifier_parse_example_spec experimental export inputs "
    "regressor_parse_example_spec tpu train_and_evaluate",
  "tf.estimator.experimental":
    "InMemoryEvaluatorHook KMeans LinearSDCA build_raw_supervised_input_receiver_fn call_logit_fn "
    "dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook "
    "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
    "stop_if_no_decrease_hook stop_if_no_increase_hook",
  "tf.estimator.export":
    "ClassificationOutput ExportOutput PredictOutput RegressionOutput ServingInputReceiver "
    "TensorServingInputReceiver build_parsing_serving_input_receiver_fn "
    "build_raw_serving_input_receiver_fn",
  "tf.estimator.inputs":
    "numpy_input_fn pandas_input_fn",
  "tf.estimator.tpu":
    "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec experimental",
  "tf.estimator.tpu.experimental":
    "EmbeddingConfigSpec",
}


def names():
  """Compares the tables with tf1ps.v1."""
  import tf1ps.v1 as tf
  from tf1ps.v1 import contrib

  for namespace, known in name_tables.CONTRIB.items():
    module = getattr(tf.contrib, namespace)
    if known is not None:
      names = {name for name in dir(module) if not name.startswith("_")}
      assert names >= set(known.split()), (namespace, names ^ set(known.split()))
    for name in name_tables.CONTRIB_GONE.get(namespace, ()):
      assert not hasattr(module, name), (namespace, name)
  assert set(dir(contrib)) == set(name_tables.CONTRIB)
  print("the tables are right")
  if hasattr(tf, "estimator"):
    print("tf1ps.v1 has estimator")
    lacking = {"%s.%s" % (space, name) for space, names in ESTIMATOR_OF_1_15.items()
               for name in names.split() if not hasattr(operator.attrgetter(space[3:])(tf), name)}
    assert lacking == name_tables.ESTIMATOR, lacking ^ name_tables.ESTIMATOR


def run(text):
  """Runs a program."""
  exec(compile(text, "program.py", "exec"), {"__name__": "__main__"})
