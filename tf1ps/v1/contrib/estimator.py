"""`tf.contrib.estimator`: most of it is in tf.estimator today."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf1ps.v1.estimator": "add_metrics",
      "tf1ps.v1.estimator.experimental":
          "InMemoryEvaluatorHook build_raw_supervised_input_receiver_fn call_logit_fn "
          "dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook "
          "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
          "stop_if_no_decrease_hook stop_if_no_increase_hook",
      "tf1ps.v1.contrib.extenders": "clip_gradients_by_norm forward_features",
      "tf1ps.v1.contrib.heads":
          "binary_classification_head logistic_regression_head multi_class_head "
          "poisson_regression_head regression_head",
    },
    advice="use the heads and estimators of tf.estimator, and for several GPUs one worker each")
