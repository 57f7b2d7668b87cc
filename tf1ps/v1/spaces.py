"""The namespaces of `tf` without a file: TensorFlow's with a few changed names, or other modules.

compat/old_names.py has the tables of the changed names.
"""

from __future__ import annotations

import functools
import importlib

import tensorflow
import tensorflow.compat.v1 as tf

from tf1ps import compat, session
from tf1ps.v1 import graph_mode, namespace, renamed

_ROOM = __name__.rpartition(".")[0]
# The namespaces without drop-ins that have lost names, or that contain the modules below.
_OTHERS = ("compat", "config", "data", "data.experimental", "examples", "examples.tutorials",
           "examples.tutorials.mnist", "layers", "nn.rnn_cell")
_OF_KERAS = {"layers": "dense", "nn.rnn_cell": "LSTMCell"}  # {namespace: a name in it}
_MODULES = {  # {name below `tf`: the module that it is}
  "compat.v1": _ROOM,  # for programs that write tf.compat.v1.train.Server
  "estimator.python": "tensorflow_estimator.python.estimator",  # a name until TensorFlow 1.13
  "examples.tutorials.mnist.input_data": _ROOM + ".mnist_data",
  "examples.tutorials.mnist.mnist": _ROOM + ".mnist_network",
  "python": "tensorflow.python",  # TensorFlow's own, also where tf1ps replaces a public name
}


def declare_all() -> None:
  """Makes Python find these namespaces."""
  for name in (*compat.DROP_INS, *_OTHERS):
    if name and not name.startswith("contrib."):  # `tf` itself and `tf.contrib` have files
      namespace.declare("%s.%s" % (_ROOM, name), _make)
  for name, module in _MODULES.items():
    if name != "estimator.python" or not compat.estimator_problem():
      namespace.declare("%s.%s" % (_ROOM, name), module)
  namespace.declare(_ROOM + ".internals", lambda package: (compat.internal_file, lambda: []))
  namespace.declare(_ROOM + ".pywrap_tensorflow", lambda package: (
    compat.internal_file("pywrap_tensorflow").__getattr__, lambda: ["NewCheckpointReader"]))


def _make(package):
  name = package[len(_ROOM) + 1:]
  if name == "train":
    _prepare_training()
  # "compat" needs the `compat` of the root module: in 1.15 only this has a `v2`. TensorFlow has no
  # `examples`.
  root = tensorflow if name == "compat" else tf
  base = functools.reduce(lambda space, part: getattr(space, part, None), name.split("."), root)
  gone = (graph_mode.explain_missing_keras(name, _OF_KERAS[name]) if name in _OF_KERAS
          else renamed.finder(name))
  return namespace.overlay(package, base, compat.DROP_INS.get(name), gone=gone)


def _prepare_training():
  session.place_as_tensorflow_1()
  session.follow_servers()  # a worker without a session reports its end, too
  importlib.import_module("tf1ps.state.ending")  # makes Server.join wait for the end of the job
