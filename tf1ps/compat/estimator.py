"""The package tensorflow-estimator on TensorFlows that no longer know it.

TensorFlow 1.15 brings the package as `tf.estimator`. Its last release, 2.15, imports private files
of TensorFlow 2.15, of which later TensorFlows lack these:

* `tf_export` has no API name "estimator" any more, under which the package lists its symbols.
* `tensorflow.python.distribute.estimator_training` is gone. It chose between distribution
  strategies and parameter servers.
* `tensorflow.python.tpu` has no `tpu_embedding`, `tpu_embedding_gradient` and `session_support` any
  more, which only training on TPUs uses.

This module puts them back before it imports the package. The package takes its server, its session
and its device setter from TensorFlow's files, and has no argument for them: `estimator_with`
changes its private functions, on TensorFlow 1.15, too. There it also fixes the BestExporter.
Exports that two tasks make in one second get names of their own. The heads of
`tf.contrib.estimator` are private functions of the package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import sys
import types
import uuid
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import canned_estimators, slim

_PACKAGE = "tensorflow_estimator.python.estimator"
_API = "estimator"
_STRATEGIES = "tensorflow.python.distribute.estimator_training"
_TPU = ("tensorflow.python.tpu.tpu_embedding", "tensorflow.python.tpu.tpu_embedding_gradient",
        "tensorflow.python.tpu.session_support")

_HEADS = {
  "binary": "_binary_logistic_head_with_sigmoid_cross_entropy_loss",
  "multi_class": "_multi_class_head_with_softmax_cross_entropy_loss",
  "regression": "_regression_head"}


def estimator_problem() -> str:
  """Returns why tensorflow-estimator cannot be imported, and what to do; "" if it can."""
  if importlib.util.find_spec("tensorflow_estimator") is None:
    return "it needs the package tensorflow-estimator. Run: pip install 'tf1ps[legacy]'"
  return ""


def prepare_estimator() -> None:
  """Lets the package be imported, where it is installed: tf_keras imports it by itself."""
  if not estimator_problem() and importlib.util.find_spec(_STRATEGIES) is None:
    _put_back()


def estimator_with(server: type, session: Callable, make_device_setter: Callable,
                   build_model: Callable[[str, Callable], object],
                   check_strategies: Callable[[list, dict], None],
                   check_tpu: Callable[[object], None]) -> types.ModuleType:
  """Imports the module that is `tf.estimator`, with other classes inside.

  Args:
    server: the class of its servers.
    session: makes the session of `Estimator.train`, as `tf.train.MonitoredTrainingSession`.
    make_device_setter: takes a RunConfig; returns a device function or None.
    build_model: takes a mode and a function without arguments, which calls the model_fn of an
      estimator; returns the EstimatorSpec.
    check_strategies: takes the distribution strategies of a RunConfig, and the values of TF_CONFIG;
      raises if they cannot be used.
    check_tpu: takes the `use_tpu` of a TPUEstimator; raises if it cannot be used.

  Raises:
    ImportError: the package is not installed, or this release lacks what changes here.
  """
  prepare_estimator()
  logging.getLogger("tensorflow").addFilter(OneDeprecation())
  slim.replace_names(_import("training"), "server_lib", {"Server": server})
  estimators = _import("estimator")
  slim.replace_names(estimators, "training", {"MonitoredTrainingSession": session})
  _replace(estimators.Estimator, "_export_all_saved_models", _export_aside)
  canned_estimators.take_keras_optimizers(_import)
  _replace(estimators, "_get_replica_device_setter", lambda unused: make_device_setter)
  _replace(estimators.Estimator, "_call_model_fn", lambda call: _call_by(call, build_model))
  # TensorFlow 1.15 looks for the best evaluation in the event files, finds the evaluation that it
  # judges, and does not export it, because it is not better. Newer releases export the first.
  _replace(_import("exporter").BestExporter, "_get_best_eval_result",
           lambda unused: lambda self, event_files: None)
  _replace(_import("tpu.tpu_estimator").TPUEstimator, "__init__",
           lambda initialise: _with_use_tpu(initialise, check_tpu))
  configs = _import("run_config")
  slim.replace_names(configs, "distribute_coordinator_training", {
    "init_run_config": functools.partial(_init_run_config, check_strategies)})
  _replace(configs.RunConfig, "_init_distributed_setting_from_environment_var", _with_a_chief)
  return _import("api._v1.estimator")


class OneDeprecation(logging.Filter):
  """Lets a single line pass of those in which the package's functions say that they are deprecated.

  TensorFlow logs them with the function's module as an argument.
  """

  def __init__(self):
    super().__init__()
    self._has_passed = False

  def filter(self, record):
    args = record.args if isinstance(record.args, tuple) else ()
    if not any(isinstance(text, str) and text.startswith("tensorflow_estimator.") for text in args):
      return True
    passes, self._has_passed = not self._has_passed, True
    return passes


def _replace(owner, name: str, make: Callable[[Callable], Callable]) -> None:
  """Replaces a private function of the package by make(function)."""
  function = getattr(owner, name, None)
  if not callable(function):
    raise ImportError("%s of the installed tensorflow-estimator has no %s, which tf1ps replaces. "
                      "Run: pip install 'tf1ps[legacy]'" % (owner.__name__, name))
  setattr(owner, name, make(function))


def _export_aside(export):
  """Has an estimator export into a folder of its own, and move that to a second after all others.

  An export is named by its second since 1970. The package only looks whether that name is taken, so
  of two tasks that export at once the later task fails. A name below an earlier export's
  will not do: the package removes the exports of the lowest names, and a server of models takes the
  highest.
  """
  @functools.wraps(export)
  def export_aside(self, export_dir_base, *args, **kwargs):
    base = tf.compat.as_bytes(export_dir_base)
    aside = os.path.join(base, tf.compat.as_bytes("temp-%s" % uuid.uuid4().hex))
    try:
      made = export(self, aside, *args, **kwargs)
      second = int(os.path.basename(made))
      names = (tf.compat.as_str(name).rstrip("/") for name in tf.gfile.ListDirectory(base))
      second = max([second] + [int(name) + 1 for name in names if name.isdigit()])
      while True:
        path = os.path.join(base, tf.compat.as_bytes(str(second)))
        try:
          tf.gfile.Rename(made, path)
          return path
        except tf.errors.OpError:
          if not tf.gfile.Exists(path):
            raise
        second += 1
    finally:
      if tf.gfile.Exists(aside):
        tf.gfile.DeleteRecursively(aside)

  return export_aside


def _import(name: str) -> types.ModuleType:
  return importlib.import_module("%s.%s" % (_PACKAGE, name))


def _call_by(call_model_fn, build_model):
  @functools.wraps(call_model_fn)
  def call(self, features, labels, mode, config):
    return build_model(mode, lambda: call_model_fn(self, features, labels, mode, config))

  return call


def estimator_head(kind: str, **arguments):
  """Makes a head that takes optimizers of `tf.train`; the package's public heads do not.

  Args:
    kind: "binary", "multi_class" or "regression".
    **arguments: those of the package's private function.
  """
  return getattr(_import("canned.head"), _HEADS[kind])(**arguments)


def train_and_evaluate(estimator, train_spec, eval_spec):
  """The package's `train_and_evaluate`."""
  return _import("training").train_and_evaluate(estimator, train_spec, eval_spec)


class Evaluations:
  """Evaluates checkpoints of an estimator and calls the exporters, once each."""

  def __init__(self, estimator, train_spec, eval_spec, is_last: bool = False):
    """Prepares.

    Args:
      estimator, train_spec, eval_spec: as for `train_and_evaluate`.
      is_last: whether the newest checkpoint is the last checkpoint of the run.

    Raises:
      TypeError: an argument has another type.
    """
    executor = _import("training")._TrainingExecutor
    executor(estimator, train_spec, eval_spec)  # checks the types
    # The package takes a checkpoint of so many steps for the run's last.
    self._estimator = estimator
    self._evaluator = executor._Evaluator(estimator, eval_spec, 1 if is_last else None)

  def evaluate(self, path: Optional[str]) -> None:
    """Evaluates a checkpoint; does nothing for None, or for the checkpoint of the last call."""
    self._estimator.latest_checkpoint = lambda: path
    try:
      self._evaluator.evaluate_and_export()
    finally:
      del self._estimator.latest_checkpoint


def _put_back() -> None:
  export = importlib.import_module("tensorflow.python.util.tf_export")
  if _API not in export.API_ATTRS:
    export.ESTIMATOR_API_NAME = _API
    for attributes, suffix in ((export.API_ATTRS, ""), (export.API_ATTRS_V1, "_v1")):
      kind = type(attributes[export.KERAS_API_NAME])
      attributes[_API] = kind("_estimator_api_names" + suffix, "_estimator_api_constants" + suffix)
  _add_module(_STRATEGIES, init_run_config=None,
              should_run_distribute_coordinator=lambda config: False)
  for name in _TPU:
    if importlib.util.find_spec(name) is None:
      _add_module(name)


def _add_module(name, **values):
  module = _OnlyOnTpu(name)
  module.__spec__ = importlib.machinery.ModuleSpec(name, None)
  vars(module).update(values)
  sys.modules[name] = module
  above, _, last = name.rpartition(".")
  setattr(importlib.import_module(above), last, module)


class _OnlyOnTpu(types.ModuleType):
  """A module whose other names are classes, because the package names them when it is imported."""

  def __getattr__(self, name):
    if name.startswith("__"):
      raise AttributeError(name)
    refusing = type(name, (), {"__init__": _refuse})
    setattr(self, name, refusing)
    return refusing


def _refuse(self, *unused_args, **unused_kwargs):
  raise NotImplementedError("%s trains on TPUs, which this TensorFlow no longer does for "
                            "estimators" % type(self).__name__)


def _with_a_chief(initialise):
  """Lets the TF_CONFIG of an evaluator name the evaluator alone: it talks to no other task."""
  @functools.wraps(initialise)
  def initialise_with_a_chief(self, tf_config):
    cluster = (tf_config or {}).get("cluster") or {}
    kind = ((tf_config or {}).get("task") or {}).get("type")
    if kind == "evaluator" and not {"chief", "master"}.intersection(cluster):
      tf_config = dict(tf_config, cluster=dict(cluster, chief=["no-chief-is-named:0"]))
    return initialise(self, tf_config)

  return initialise_with_a_chief


def _with_use_tpu(initialise, check_tpu):
  """Checks the `use_tpu` of a TPUEstimator before it is made; its default is True."""
  signature = inspect.signature(initialise)

  @functools.wraps(initialise)
  def checked_initialise(self, *args, **kwargs):
    arguments = signature.bind(self, *args, **kwargs)
    arguments.apply_defaults()
    check_tpu(arguments.arguments["use_tpu"])
    return initialise(self, *args, **kwargs)

  return checked_initialise


def _init_run_config(check_strategies, config, tf_config: Optional[dict]) -> None:
  """Completes a RunConfig with a distribution strategy; its cluster is that of TF_CONFIG."""
  more = config._experimental_distribute
  strategies = [config._train_distribute, config._eval_distribute]
  if more is not None:
    strategies += [more.train_distribute, more.eval_distribute, more.remote_cluster]
  check_strategies([each for each in strategies if each is not None], tf_config or {})
  config._distribute_coordinator_mode = None
  config._init_distributed_setting_from_environment_var(tf_config)
  config._maybe_overwrite_session_config_for_distributed_training()
