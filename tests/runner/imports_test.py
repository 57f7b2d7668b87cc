from __future__ import annotations

import ast

import pytest

from tf1ps.runner import imports


def replaced(source):
  """The (line, new statement) of what is replaced."""
  return [(line, new) for line, _, new in imports.replace_imports(ast.parse(source))]


@pytest.mark.parametrize("old, new", [
    ("import tensorflow as tf", "import tf1ps.v1 as tf"),
    ("import tensorflow", "import tf1ps.v1 as tensorflow"),
    ("import tensorflow.compat.v1 as tf", "import tf1ps.v1 as tf"),
    ("from tensorflow.compat import v1", "from tf1ps import v1"),
    ("from tensorflow.compat import v1 as tf", "from tf1ps import v1 as tf"),
    ("from tensorflow.compat.v1 import app, flags", "from tf1ps.v1 import app, flags"),
    ("import tensorflow.contrib.slim as slim", "import tf1ps.v1.contrib.slim as slim"),
    ("import tensorflow.contrib",
     "import tf1ps.v1.contrib as tensorflow; import tf1ps.v1 as tensorflow"),
    ("from tensorflow.contrib import slim, layers", "from tf1ps.v1.contrib import slim, layers"),
    ("from tensorflow import *", "from tf1ps.v1 import *"),
    ("from tensorflow.examples.tutorials.mnist import input_data",
     "from tf1ps.v1.examples.tutorials.mnist import input_data"),
    ("import os, tensorflow as tf, sys", "import os; import tf1ps.v1 as tf; import sys"),
])
def test_an_import_of_tensorflow_is_answered_by_v1(old, new):
  tree = ast.parse(old)
  assert imports.replace_imports(tree) == [imports.Replacement(1, old, new)]
  shown = [imports._text(node) for node in tree.body]
  assert "; ".join(shown) == new
  compile(tree, "here", "exec")


@pytest.mark.parametrize("statement", [
    "import numpy as np, os", "import tensorflow_hub as hub", "from tensorflow_hub import tf",
    "from . import tensorflow", "from .tensorflow import ops", "from .. import a",
    "import tensorflow.compat.v2 as tf2", "from tensorflow.compat import v2",
    "from tensorflow.core.framework import summary_pb2",
    "from tensorflow.models.rnn.ptb import reader", "from tensorflow import python, core",
    "from tensorflow.python.client import timeline, device_lib",
    "import tensorflow.python.ops.init_ops as init_ops",
    "from tensorflow.python.framework.ops import _get_graph_from_inputs"])
def test_what_is_not_replaced(statement):
  tree = ast.parse(statement)
  before = ast.dump(tree)
  assert imports.replace_imports(tree) == []
  assert ast.dump(tree) == before


@pytest.mark.parametrize("old, new", [
    ("from tensorflow.python.training.supervisor import Supervisor",
     "from tf1ps.v1.train import Supervisor"),
    ("from tensorflow.python.training import supervisor",
     "from tf1ps.v1 import train as supervisor"),
    ("from tensorflow.python.training import saver, sync_replicas_optimizer as sync",
     "from tensorflow.python.training import saver; from tf1ps.v1 import train as sync"),
    ("from tensorflow.python.platform import gfile, app",
     "from tensorflow.python.platform import gfile; from tf1ps.v1 import app"),
    ("from tensorflow.python.platform import flags", "from tf1ps.v1.app import flags"),
    ("from tensorflow.python.ops import rnn, rnn_cell",
     "from tf1ps.v1 import nn as rnn; from tf1ps.v1.nn import rnn_cell"),
    ("from tensorflow.python.ops import init_ops, state_ops, rnn_cell",
     "from tensorflow.python.ops import init_ops, state_ops; from tf1ps.v1.nn import rnn_cell"),
    ("from tensorflow.python.training import training_ops",
     "from tf1ps.v1.internals import training_training_ops as training_ops"),
    ("from tensorflow.python.ops.control_flow_ops import cond, with_dependencies",
     "from tf1ps.v1.internals.ops_control_flow_ops import cond, with_dependencies"),
    ("import tensorflow.python.ops.array_ops as array_ops",
     "import tf1ps.v1.internals.ops_array_ops as array_ops"),
    ("from tensorflow.python.keras.datasets import mnist",
     "from tf1ps.v1.keras.datasets import mnist"),
    ("from tensorflow.python.layers.layers import dense", "from tf1ps.v1.layers import dense"),
    ("from tensorflow.python.layers import core as layers_core, utils",
     "from tf1ps.v1 import layers as layers_core; from tensorflow.python.layers import utils"),
    ("from tensorflow.python.training.training import Saver, _private",
     "from tf1ps.v1.train import Saver; from tensorflow.python.training.training import _private"),
    ("import tensorflow.python.training.supervisor as s", "import tf1ps.v1.train as s"),
    ("from tensorflow.python.data import Dataset, ops",
     "from tf1ps.v1.data import Dataset; from tensorflow.python.data import ops"),
    ("from tensorflow.python.estimator.canned.head import _Head, Head",
     "from tf1ps.v1.estimator.python.canned.head import _Head, Head"),
    ("from tensorflow_estimator.python.estimator import early_stopping",
     "from tf1ps.v1.estimator.python import early_stopping"),
    ("import tensorflow_estimator as te", "import tf1ps.v1 as te"),
    ("import tensorflow_estimator", "import tf1ps.v1 as tensorflow_estimator"),
])
def test_internals_that_define_what_tf1ps_replaces(old, new):
  assert replaced(old) == [(1, new)]


def test_internals_stay_in_reach_by_the_name_tensorflow():
  assert replaced("import tensorflow.python.client.timeline") == [
    (1, "import tensorflow.python.client.timeline; import tf1ps.v1 as tensorflow")]


def test_statements_are_replaced_wherever_they_stand_and_keep_their_lines():
  source = """from __future__ import print_function

try:
  import tensorflow as tf; import os
except ImportError:
  tf = None

def late():
  if tf:
    from tensorflow.contrib import (
      slim,
      layers)
  raise ValueError
"""
  tree = ast.parse(source)
  assert [line for line, _, _ in imports.replace_imports(tree)] == [4, 10]
  lines = {type(node).__name__: node.lineno for node in ast.walk(tree) if hasattr(node, "lineno")}
  assert lines["Raise"] == 13
  new = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
  assert sorted(node.lineno for node in new) == [1, 4, 4, 10]
  compile(tree, "here", "exec")


@pytest.mark.parametrize("old, new", [
    ("import numpy as np\nnp.int", "import tf1ps.compat.old_numpy as np"),
    ("import os, numpy\nx = numpy.float", "import os; import tf1ps.compat.old_numpy as numpy"),
    ("from numpy import array, product", "from tf1ps.compat.old_numpy import array, product"),
    ("import numpy as np\nnp.array; x.int", None), ("from numpy import array", None),
    ("import numpy.linalg\nnumpy.int", None), ("from .numpy import int", None)])
def test_a_removed_name_of_numpy_is_put_back(old, new):
  tree = ast.parse(old)
  assert imports.replace_numpy(tree) == (
    [imports.Replacement(1, old.partition("\n")[0], new)] if new else [])
  compile(tree, "here", "exec")
