"""The estimators of tensorflow-estimator that come with a model_fn, for optimizers of Keras.

A program for TensorFlow 2 gives such an estimator an optimizer of Keras, which TensorFlow 1's
classes refuse. The package has a second class for each, which takes it: TensorFlow 2's. So a
TensorFlow 1 class makes an estimator of the second class where it gets such an optimizer.
"""

from __future__ import annotations

import inspect
from typing import Callable

import tensorflow.compat.v1 as tf

_CLASSES = {
  "canned.baseline": "BaselineClassifier BaselineEstimator BaselineRegressor",
  "canned.dnn": "DNNClassifier DNNEstimator DNNRegressor",
  "canned.dnn_linear_combined":
    "DNNLinearCombinedClassifier DNNLinearCombinedEstimator DNNLinearCombinedRegressor",
  "canned.linear": "LinearClassifier LinearEstimator LinearRegressor",
}


def take_keras_optimizers(import_module: Callable) -> None:
  """Has the package's TensorFlow 1 classes take optimizers of Keras; once per process.

  Args:
    import_module: imports a module of the package by its name there.

  Raises:
    ImportError: this release of the package lacks a class.
  """
  for module, names in _CLASSES.items():
    for name in names.split():
      owner = import_module(module)
      if not hasattr(owner, name + "V2"):
        raise ImportError("%s of the installed tensorflow-estimator has no %sV2, which tf1ps uses. "
                          "Run: pip install 'tf1ps[legacy]'" % (owner.__name__, name))
      _choose_by_optimizer(getattr(owner, name), getattr(owner, name + "V2"))


def _choose_by_optimizer(older: type, newer: type) -> None:
  signature = inspect.signature(older.__init__)

  def make(cls, *args, **kwargs):
    if cls is older and (args or kwargs):  # not a copy, and not a program's own class
      given = dict(signature.bind(cls, *args, **kwargs).arguments)
      given.pop("self")
      if any(_is_of_keras(value) for name, value in given.items() if name.endswith("optimizer")):
        return newer(**given)
    return object.__new__(cls)

  older.__new__ = staticmethod(make)


def _is_of_keras(optimizer) -> bool:
  if callable(optimizer):  # it is called in the graph of the model, which is not there yet
    with tf.Graph().as_default():
      tf.train.create_global_step()
      optimizer = optimizer()
  return isinstance(optimizer, tf.keras.optimizers.Optimizer)
