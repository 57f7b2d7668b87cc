"""`tensorflow.python.estimator`: the files of the package tensorflow-estimator.

TensorFlow had them under this name until 1.13. They come with tf1ps' classes inside.
"""

from __future__ import annotations

import importlib
import sys

from tf1ps.v1.estimator import package

package.load()
sys.modules[__name__] = importlib.import_module("tensorflow_estimator.python.estimator")
