"""Has a file's imports of TensorFlow answered by `tf1ps.v1`.

It replaces `import` statements in a parsed file, not the module `tensorflow` itself: TensorFlow and
installed libraries go on importing the real one. A replaced statement keeps its line.

    import tensorflow as tf                  import tf1ps.v1 as tf
    import tensorflow.contrib.slim as slim   import tf1ps.v1.contrib.slim as slim
    from tensorflow.contrib import slim      from tf1ps.v1.contrib import slim
    from tensorflow.compat import v1 as tf   from tf1ps import v1 as tf
    import tensorflow.contrib                import tf1ps.v1.contrib as tensorflow
                                             import tf1ps.v1 as tensorflow

The last form binds the name `tensorflow`, and has to fail where there is no such module.
"""

from __future__ import annotations

import ast
from typing import List, NamedTuple, Optional, Tuple

V1 = "tf1ps.v1"
_LAYERS, _RNN_CELL, _TRAIN = V1 + ".layers", V1 + ".nn.rnn_cell", V1 + ".train"
_ESTIMATOR = V1 + ".estimator.python"
# {module of TensorFlow: what answers for it and for the modules below it}; None: TensorFlow itself.
# The longest name that fits counts. Of TensorFlow's internals only those have a line of their own
# that define what tf1ps replaces, or that newer TensorFlows do not have.
_ANSWERS = {
  "tensorflow": V1,
  "tensorflow.compat.v1": V1,
  "tensorflow.compat.v2": None,
  "tensorflow.compiler": None,
  "tensorflow.core": None,
  "tensorflow.lite": None,
  "tensorflow.models": None,
  "tensorflow.python": None,
  "tensorflow.python.data.Dataset": V1 + ".data.Dataset",
  "tensorflow.python.data.FixedLengthRecordDataset": V1 + ".data.FixedLengthRecordDataset",
  "tensorflow.python.data.Iterator": V1 + ".data.Iterator",
  "tensorflow.python.data.TFRecordDataset": V1 + ".data.TFRecordDataset",
  "tensorflow.python.data.TextLineDataset": V1 + ".data.TextLineDataset",
  "tensorflow.python.estimator": _ESTIMATOR,
  "tensorflow.python.layers.base": _LAYERS,
  "tensorflow.python.layers.convolutional": _LAYERS,
  "tensorflow.python.layers.core": _LAYERS,
  "tensorflow.python.layers.layers": _LAYERS,
  "tensorflow.python.layers.normalization": _LAYERS,
  "tensorflow.python.layers.pooling": _LAYERS,
  "tensorflow.python.ops.rnn": V1 + ".nn",
  "tensorflow.python.ops.rnn_cell": _RNN_CELL,
  "tensorflow.python.ops.rnn_cell_impl": _RNN_CELL,
  "tensorflow.python.platform.app": V1 + ".app",
  "tensorflow.python.platform.flags": V1 + ".app.flags",
  "tensorflow.python.training.coordinator": _TRAIN,
  "tensorflow.python.training.device_setter": _TRAIN,
  "tensorflow.python.training.input": _TRAIN,
  "tensorflow.python.training.monitored_session": _TRAIN,
  "tensorflow.python.training.queue_runner": _TRAIN,
  "tensorflow.python.training.queue_runner_impl": _TRAIN,
  "tensorflow.python.training.server_lib": _TRAIN,
  "tensorflow.python.training.supervisor": _TRAIN,
  "tensorflow.python.training.sync_replicas_optimizer": _TRAIN,
  "tensorflow.python.training.training": _TRAIN,
  "tensorflow.tools": None,
  "tensorflow_estimator": V1,
  "tensorflow_estimator.python.estimator": _ESTIMATOR,
}


class Replacement(NamedTuple):
  """A changed statement or line."""

  line: int
  old: str
  new: str


def replace_imports(tree: ast.Module) -> List[Replacement]:
  """Replaces the imports of TensorFlow in a parsed file; returns what it replaced, by line."""
  replacer = _Replacer()
  replacer.visit(tree)
  return sorted(replacer.replaced)


def answer_of(module: str) -> Optional[str]:
  """Returns the module that answers for a module, or None where it stays."""
  known = module
  while known and known not in _ANSWERS:
    known = known.rpartition(".")[0]
  answer = _ANSWERS.get(known)
  return answer and answer + module[len(known):]


class _Replacer(ast.NodeTransformer):
  """Visits the import statements of a file."""

  def __init__(self):
    self.replaced: List[Replacement] = []

  def visit_Import(self, node):  # noqa: N802  ast's name
    if not any(_is_tensorflow(alias.name) for alias in node.names):
      return node
    return self._replace(node, [each for alias in node.names for each in _new_imports(alias)])

  def visit_ImportFrom(self, node):  # noqa: N802  ast's name
    if node.level or not _is_tensorflow(node.module):
      return node
    origins = [_origin(node.module, alias) for alias in node.names]
    new = []
    for (module, alias), previous in zip(origins, [(None, None)] + origins):
      if module == previous[0] and len(node.names) > 1:
        new[-1].names.append(alias)
      else:
        new.append(ast.ImportFrom(module=module, names=[alias], level=0))
    return self._replace(node, new)

  def _replace(self, node, new: list):
    """Puts statements into the place of one, if they are others."""
    if "; ".join(map(_text, new)) == _text(node):
      return node
    self.replaced.append(
      Replacement(node.lineno, _text(node), "; ".join(map(_text, new))))
    for each in new:
      ast.copy_location(each, node)
      for alias in each.names:  # they have places of their own from Python 3.10 on
        ast.copy_location(alias, node)
    return new


def _is_tensorflow(module: str) -> bool:
  return module.partition(".")[0] in ("tensorflow", "tensorflow_estimator")


def _new_imports(alias: ast.alias) -> List[ast.Import]:
  """Returns the statements for one name of an `import` statement."""
  if not _is_tensorflow(alias.name):
    return [ast.Import([alias])]
  answer = answer_of(alias.name)
  if alias.asname:
    return [ast.Import([ast.alias(answer or alias.name, alias.asname)])]
  name = alias.name.partition(".")[0]
  root = ast.Import([ast.alias(V1, name)])
  if answer == V1:
    return [root]
  return [ast.Import([ast.alias(answer, name) if answer else alias]), root]


def _origin(module: str, alias: ast.alias) -> Tuple[str, ast.alias]:
  """Returns the module and the name that `from module import name` takes now."""
  full = "%s.%s" % (module, alias.name)
  answer = answer_of(full)
  if answer is None or alias.name.startswith("_") and not answer.startswith(_ESTIMATOR):
    return module, alias  # a private name is not in tf1ps.v1
  parent, _, name = answer.rpartition(".")
  if name == alias.name:
    return parent, alias
  return parent, ast.alias(name, alias.asname or alias.name)


def _text(node) -> str:
  """Returns an import statement as text."""
  names = ", ".join(
    "%s as %s" % (alias.name, alias.asname) if alias.asname else alias.name
    for alias in node.names)
  if isinstance(node, ast.Import):
    return "import " + names
  return "from %s%s import %s" % ("." * node.level, node.module or "", names)
