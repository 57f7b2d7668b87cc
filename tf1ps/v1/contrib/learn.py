"""`tf.contrib.learn`: Experiments over tf.estimator, and readers of MNIST."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf1ps.v1.contrib":
          "datasets=learn_datasets experiment=learn_experiment export_strategy=learn_exports "
          "learn_runner utils=learn_exports estimators=learn_config run_config=learn_config",
      "tf1ps.v1.contrib.learn_config": "ModeKeys RunConfig TaskType",
      "tf1ps.v1.contrib.learn_experiment": "Experiment",
      "tf1ps.v1.contrib.learn_exports": "ExportStrategy make_export_strategy",
    },
    advice="its estimators are in TensorFlow 1.15 only. Those of tf.estimator take the place, with "
           "the columns of tf.feature_column and the EstimatorSpec of their model_fn",
    path="python.learn")
