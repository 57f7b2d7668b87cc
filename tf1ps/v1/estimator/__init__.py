"""`tf.estimator`: the package tensorflow-estimator with tf1ps' servers and sessions inside.

TensorFlow up to 2.15 includes the package. With later versions it is installed separately, for
example by `tf1ps[legacy]`. With tf1ps, the cluster of an estimator starts, survives failures and
ends, including the ps and the evaluator.
"""

from __future__ import annotations

from tf1ps.v1 import namespace as _namespace
from tf1ps.v1.estimator import package as _package
from tf1ps.v1.estimator.estimator_options import EstimatorOptions, set_options  # noqa: F401
from tf1ps.v1.estimator.training import train_and_evaluate  # noqa: F401

__getattr__, __dir__ = _namespace.overlay(__name__, _package.load(), gone=_package.explain)
