"""`tf.contrib.learn.Experiment` and `learn_runner`, by means of `tf.estimator.train_and_evaluate`.

On a cluster each task does its part for any method that the program calls: the ps serve, the
workers train, the evaluator or the master evaluates.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

import tf1ps.v1 as tf1


class Experiment:
  """An estimator with its data.

  Args:
    estimator: a `tf.estimator.Estimator`.
    train_input_fn: returns features and labels for training.
    eval_input_fn: returns features and labels for evaluation.
    eval_metrics: must be None, because eval_metric_ops of the model_fn define the metrics.
    train_steps: the global step at which training ends; None: at the end of the data.
    eval_steps: batches per evaluation; None: all.
    train_monitors: hooks of training.
    eval_hooks: hooks of evaluations.
    eval_delay_secs: seconds until the evaluator begins.
    continuous_eval_throttle_secs: seconds between two evaluations of the evaluator.
    export_strategies: exporters of tf.estimator, or results of `make_export_strategy`.
    train_steps_per_iteration: steps between two evaluations of `continuous_train_and_eval`.
    saving_listeners: listeners of the checkpoints.
    **unused: other arguments of TensorFlow's class, which decide how often it evaluates. Here each
      checkpoint is evaluated.

  Raises:
    ValueError: eval_metrics is not None.
  """

  def __init__(self, estimator, train_input_fn, eval_input_fn, eval_metrics=None, train_steps=None,
               eval_steps=100, train_monitors=None, eval_hooks=None, eval_delay_secs=120,
               continuous_eval_throttle_secs=60, export_strategies=None,
               train_steps_per_iteration=None, saving_listeners=None, **unused):
    if eval_metrics is not None:
      raise ValueError("Experiment has eval_metrics, and an estimator of tf.estimator has its own. "
                       "Return them as eval_metric_ops of the EstimatorSpec")
    self.estimator = estimator
    self.train_steps, self.eval_steps = train_steps, eval_steps
    self._steps_per_iteration = train_steps_per_iteration or max((train_steps or 10000) // 10, 1)
    self._train_hooks = list(train_monitors or [])
    self._saving_listeners = saving_listeners
    self._train_input_fn = train_input_fn
    self._eval = {"input_fn": eval_input_fn, "steps": eval_steps, "hooks": list(eval_hooks or [])}
    self._delay, self._throttle = eval_delay_secs, continuous_eval_throttle_secs
    if isinstance(export_strategies, tf1.estimator.Exporter):
      export_strategies = [export_strategies]
    self._exporters = list(export_strategies or [])

  def extend_train_hooks(self, additional_hooks) -> None:
    """Adds hooks of training."""
    self._train_hooks.extend(additional_hooks)

  def train_and_evaluate(self):
    """Trains and evaluates; returns the metrics and the results of the exporters.

    On a cluster it returns nothing.
    """
    return tf1.estimator.train_and_evaluate(
      self.estimator,
      tf1.estimator.TrainSpec(self._train_input_fn, self.train_steps, self._train_hooks,
                              self._saving_listeners),
      tf1.estimator.EvalSpec(exporters=self._exporters, start_delay_secs=self._delay,
                             throttle_secs=self._throttle if self._is_distributed() else 0,
                             **self._eval))

  def train(self, delay_secs=None):
    """Trains; on a cluster the task does its part."""
    if self._is_distributed():
      return self.train_and_evaluate()
    return self._train(max_steps=self.train_steps)

  def evaluate(self, delay_secs=None, name=None) -> dict:
    """Evaluates the newest checkpoint; returns the metrics."""
    return self.estimator.evaluate(name=name or "one_pass", **self._eval)

  def continuous_train_and_eval(self, continuous_eval_predicate_fn=None):
    """Trains some steps and evaluates, repeatedly; returns the metrics and the export results.

    Args:
      continuous_eval_predicate_fn: takes the last metrics, at first None. If it returns False, the
        method ends.
    """
    if self._is_distributed():
      return self.train_and_evaluate()
    metrics = None
    while continuous_eval_predicate_fn is None or continuous_eval_predicate_fn(metrics):
      self._train(steps=self._steps_per_iteration)
      metrics = self.evaluate()
      if self.train_steps and metrics[tf.GraphKeys.GLOBAL_STEP] >= self.train_steps:
        break
    return metrics, self._export(metrics)

  def test(self) -> dict:
    """Makes one step of each part: trains, evaluates, exports."""
    self._train(steps=1)
    metrics = self.estimator.evaluate(name="one_pass", **{**self._eval, "steps": 1})
    self._export(metrics)
    return metrics

  local_run = run_std_server = train_and_evaluate

  def continuous_eval(self, *args, **kwargs):
    """Evaluates each checkpoint until the run has ended, as the task "evaluator" of a cluster."""
    if not self._is_distributed():
      raise ValueError("continuous_eval needs a cluster in TF_CONFIG, and the task \"evaluator\". "
                       "Or use train_and_evaluate")
    return self.train_and_evaluate()

  def _is_distributed(self):
    return bool(self.estimator.config.cluster_spec)

  def _train(self, **limit):
    return self.estimator.train(
      self._train_input_fn, hooks=list(self._train_hooks),
      saving_listeners=self._saving_listeners, **limit)

  def _export(self, metrics):
    folder = "%s/export/" % self.estimator.model_dir
    return [exporter.export(
      self.estimator, folder + exporter.name, self.estimator.latest_checkpoint(), metrics, True)
            for exporter in self._exporters]


def run(experiment_fn, output_dir=None, schedule=None, run_config=None, hparams=None):
  """Makes an Experiment, and calls a method of it.

  Args:
    experiment_fn: called as `experiment_fn(run_config, hparams)`, or without a run_config as
      `experiment_fn(output_dir)`; returns an `Experiment`.
    output_dir: the model directory.
    schedule: the name of the method; None for `train_and_evaluate`. On a cluster each task does
      its part for any method.
    run_config: a RunConfig.
    hparams: the hyperparameters.

  Returns:
    The result of the method.

  Raises:
    ValueError: run_config and output_dir are both given, or neither; or an unknown method is named.
    TypeError: `experiment_fn` does not return an `Experiment`.
  """
  if (run_config is None) == (output_dir is None):
    raise ValueError("learn_runner.run needs either run_config or output_dir")
  if run_config is None:
    experiment = experiment_fn(output_dir)
  else:
    experiment = experiment_fn(run_config, hparams)
  if not isinstance(experiment, Experiment):
    raise TypeError("experiment_fn returned %r, not a tf.contrib.learn.Experiment" % (experiment,))
  method = getattr(experiment, schedule or "train_and_evaluate", None)
  if not callable(method):
    raise ValueError("An Experiment has no schedule %r" % schedule)
  return method()
