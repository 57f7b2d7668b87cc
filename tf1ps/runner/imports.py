"""Answers a file's imports of TensorFlow by `tf1ps.v1`.

It replaces `import` statements in a parsed file, not the module `tensorflow` itself: TensorFlow and
installed libraries still import the real TensorFlow. A replaced statement keeps its line.

    import tensorflow as tf                  import tf1ps.v1 as tf
    import tensorflow.contrib.slim as slim   import tf1ps.v1.contrib.slim as slim
    from tensorflow.contrib import slim      from tf1ps.v1.contrib import slim
    from tensorflow.compat import v1 as tf   from tf1ps import v1 as tf
    import tensorflow.contrib                import tf1ps.v1.contrib as tensorflow
                                             import tf1ps.v1 as tensorflow

The last form binds the name `tensorflow`, and has to fail without such a module.

A file that uses a removed name of NumPy gets a NumPy that has it.
"""

from __future__ import annotations

import ast
from typing import List, NamedTuple, Optional, Tuple

from tf1ps.compat import GONE_FILES, INTERNAL_FILES, PYTHON_FILES, REMOVED_FROM_NUMPY

V1 = "tf1ps.v1"
_ESTIMATOR = V1 + ".estimator.python"
_NUMPY = "tf1ps.compat.old_numpy"
# {module of TensorFlow: the module that answers for it and for the modules below it}; None:
# TensorFlow itself. The longest name that fits counts. Of TensorFlow's internals, a file has a line
# if it defines a name that tf1ps replaces, or if newer TensorFlows do not have it.
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
  "tensorflow.python.layers.base": V1 + ".layers",
  "tensorflow.python.ops.rnn": V1 + ".nn",
  "tensorflow.python.tpu.tpu_config": V1 + ".contrib.tpu",
  "tensorflow.python.tpu.tpu_estimator": V1 + ".contrib.tpu",
  "tensorflow.tools": None,
  "tensorflow_estimator": V1,
  "tensorflow_estimator.python.estimator": _ESTIMATOR,
}
_ANSWERS.update({
  "tensorflow.python." + file: "%s.%s" % (V1, space) for table in (PYTHON_FILES, GONE_FILES)
  for space, files in table.items() for file in files.split()})
_ANSWERS.update({file: "%s.internals.%s" % (V1, name) for file, name in INTERNAL_FILES.items()})


class Replacement(NamedTuple):
  """A changed statement or line."""

  line: int
  old: str
  new: str


def replace_imports(tree: ast.Module) -> List[Replacement]:
  """Replaces the imports of TensorFlow in a parsed file; returns the replacements, by line."""
  replacer = _TensorflowReplacer()
  replacer.visit(tree)
  return sorted(replacer.replaced)


def replace_numpy(tree: ast.Module) -> List[Replacement]:
  """Replaces the imports of NumPy in a file that uses a removed name; returns the replacements."""
  named = {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
           for alias in node.names if alias.name == "numpy"}
  replacer = _NumpyReplacer(any(
    isinstance(node, ast.Attribute) and node.attr in REMOVED_FROM_NUMPY
    and getattr(node.value, "id", None) in named for node in ast.walk(tree)))
  replacer.visit(tree)
  return sorted(replacer.replaced)


def answer_of(module: str) -> Optional[str]:
  """Returns the module that answers for a module, or None if it stays."""
  known = module
  while known and known not in _ANSWERS:
    known = known.rpartition(".")[0]
  answer = _ANSWERS.get(known)
  return answer and answer + module[len(known):]


class _Replacer(ast.NodeTransformer):
  def __init__(self):
    self.replaced: List[Replacement] = []

  def _replace(self, node, new: list):
    """Puts statements into the place of a statement, if they differ."""
    text = "; ".join(map(_text, new))
    if text == _text(node):
      return node
    self.replaced.append(Replacement(node.lineno, _text(node), text))
    for statement in new:
      ast.copy_location(statement, node)
      for alias in statement.names:  # they have places of their own from Python 3.10 on
        ast.copy_location(alias, node)
    return new


class _TensorflowReplacer(_Replacer):
  def visit_Import(self, node):  # noqa: N802  ast's name
    if not any(_is_tensorflow(alias.name) for alias in node.names):
      return node
    return self._replace(node, [new for alias in node.names for new in _new_imports(alias)])

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


class _NumpyReplacer(_Replacer):
  def __init__(self, uses_removed: bool):
    super().__init__()
    self._uses_removed = uses_removed  # by the module's name

  def visit_Import(self, node):  # noqa: N802  ast's name
    if not self._uses_removed:
      return node
    return self._replace(node, [ast.Import([
      ast.alias(_NUMPY, alias.asname or alias.name) if alias.name == "numpy" else alias])
      for alias in node.names])

  def visit_ImportFrom(self, node):  # noqa: N802  ast's name
    if node.level or node.module != "numpy" or not any(
        alias.name in REMOVED_FROM_NUMPY for alias in node.names):
      return node
    return self._replace(node, [ast.ImportFrom(module=_NUMPY, names=node.names, level=0)])


def _is_tensorflow(module: str) -> bool:
  return module.partition(".")[0] in ("tensorflow", "tensorflow_estimator")


def _new_imports(alias: ast.alias) -> List[ast.Import]:
  """Returns the statements for a name of an `import` statement."""
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
  names = ", ".join(
    "%s as %s" % (alias.name, alias.asname) if alias.asname else alias.name
    for alias in node.names)
  if isinstance(node, ast.Import):
    return "import " + names
  return "from %s%s import %s" % ("." * node.level, node.module or "", names)
