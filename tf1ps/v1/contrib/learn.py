"""`tf.contrib.learn`: the reader of MNIST; its estimators are in no library of today."""

from __future__ import annotations

from tf1ps.v1.contrib import learn_datasets  # noqa: F401
from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={"tf1ps.v1.contrib": "datasets=learn_datasets"},
    advice="TensorFlow has no estimators since 2.16. Train with tf.train.MonitoredTrainingSession",
    path="python.learn")
