"""`tf.contrib.learn.learn_runner`: makes an Experiment and runs it."""

from __future__ import annotations

from tf1ps.v1.contrib import learn_experiment


def run(experiment_fn, output_dir=None, schedule=None, run_config=None, hparams=None):
  """Makes an Experiment, and calls one of its methods.

  Args:
    experiment_fn: called as `experiment_fn(run_config, hparams)`, without a run_config as
      `experiment_fn(output_dir)`; returns an `Experiment`.
    output_dir: the model directory.
    schedule: the name of the method; None for `train_and_evaluate`. On a cluster each task does
      its part, whatever the method.
    run_config: a RunConfig.
    hparams: the hyperparameters.

  Returns:
    The result of the method.

  Raises:
    ValueError: there are both run_config and output_dir, or neither; or there is no such method.
    TypeError: `experiment_fn` does not return an `Experiment`.
  """
  if (run_config is None) == (output_dir is None):
    raise ValueError("learn_runner.run needs run_config or output_dir, one of them")
  if run_config is None:
    experiment = experiment_fn(output_dir)
  else:
    experiment = experiment_fn(run_config, hparams)
  if not isinstance(experiment, learn_experiment.Experiment):
    raise TypeError("experiment_fn returned %r, not a tf.contrib.learn.Experiment" % (experiment,))
  method = getattr(experiment, schedule or "train_and_evaluate", None)
  if not callable(method):
    raise ValueError("An Experiment has no schedule %r" % schedule)
  return method()
