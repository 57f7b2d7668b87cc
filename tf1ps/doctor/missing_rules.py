"""Rules of the names that a program uses but today's TensorFlow does not have."""

from __future__ import annotations

import ast
import re
from typing import Callable, Iterator, Optional, Tuple

from tf1ps import compat
from tf1ps.doctor import name_tables, names, texts
from tf1ps.doctor.findings import GONE, Rule

_ESTIMATOR, _CONTRIB = "tf.estimator", "tf.contrib"
_STRATEGIES = "tf.contrib.distribute"
_PS_STRATEGY = re.compile(r"tf2?\.distribute\.(experimental\.)?ParameterServerStrategy")
_LAYERS = ("tf.layers", "tf.nn.rnn_cell")
_TUTORIALS = ("tf.examples.tutorials", "tf.models")
_RENAMED = {"tf." + old for old in compat.RENAMED}
# These names are also missing, but have separate rules.
_OTHERS = (_ESTIMATOR, _CONTRIB) + _LAYERS + _TUTORIALS


def _is_below(name: str, parents) -> bool:
  parents = (parents,) if isinstance(parents, str) else parents
  return any(name == parent or name.startswith(parent + ".") for parent in parents)


def _taken(program, is_meant: Callable[[str], object]) -> Iterator[Tuple[ast.AST, str]]:
  """Yields each place that takes a name of TensorFlow: `from tensorflow.contrib import slim`.

  The function yields each place once. It does not yield later uses of the imported name, such as
  `slim.conv2d`.

  Args:
    program: the program.
    is_meant: takes a name; returns whether the rule looks for it.
  """
  for node, full in program.imports():
    name = names.canonical(full).spelling
    if _is_below(name, "tf") and is_meant(name) and not program.is_guarded(node):
      yield node, name
  for node, name in program.names():
    if _is_below(name, "tf") and is_meant(name) and not program.is_guarded(node):
      yield node, name


def _root(program, node: ast.AST) -> Tuple[ast.AST, Optional[str]]:
  """Returns the first name of an expression, `tf` of `tf.train.Server`, and its spelling."""
  while isinstance(node, ast.Attribute) and not program.bindings(node):
    node = node.value
  return node, program.spelling_of(node)


def _of_namespace(program, *parents: str) -> Iterator[Tuple[ast.AST, str]]:
  """Yields the places that take a name from a namespace of TensorFlow."""
  for node, name in _taken(program, lambda name: _is_below(name, parents)):
    is_import = isinstance(node, (ast.Import, ast.ImportFrom))
    if is_import or not _is_below(_root(program, node)[1] or "", parents):
      yield node, name


def _graph_names(program):
  """Finds imports of `tensorflow` through which a program uses names that only compat.v1 has."""
  missing = {}  # {the statement: names}
  for node, name in sorted(program.names(), key=lambda used: program.place(used[0])):
    known = _first_known(name, name_tables.ONLY_V1)
    if (known and program.origin_of(node) == "tensorflow" and not _is_below(name, _OTHERS)
        and not program.is_guarded(node)):
      for binding in program.bindings(_root(program, node)[0]):
        if binding.imported:  # the finding of a name bound to another name is at the other name
          missing.setdefault(binding.statement, []).append(known)
  for statement, lacking in missing.items():
    lacking = list(dict.fromkeys(lacking))
    yield statement, "`tensorflow` is TensorFlow 2, which has no %s%s" % (
      ", ".join(lacking[:3]), " and %d more names of this file" % (len(lacking) - 3)
      if len(lacking) > 3 else "")


def _first_known(name: str, known) -> Optional[str]:
  """Returns the shortest beginning of a name that is in a table; None if no beginning is."""
  parts = name.split(".")
  heads = (".".join(parts[:count]) for count in range(2, len(parts) + 1))
  return next((head for head in heads if head in known), None)


def _contrib(program, has_heir: bool):
  def is_meant(name):
    return (_is_below(name, _CONTRIB) and name != _CONTRIB and not _is_below(name, _STRATEGIES)
            and _has_heir(name) == has_heir)

  for node, name in _taken(program, is_meant):
    is_import = isinstance(node, (ast.Import, ast.ImportFrom))
    taken_before = None if is_import else _root(program, node)[1]
    # The import of `slim` was reported, so `slim.conv2d` is reported only if tf1ps.v1 has `slim`
    # and lacks `conv2d`.
    if taken_before is None or not _is_below(taken_before, _CONTRIB) or (
        not has_heir and _has_heir(taken_before)):
      yield node, "TensorFlow 2 has no %s%s" % (
        _short(name), "" if has_heir else ", nor has tf1ps.v1" + _advice(name.split(".")[2]))


def _advice(space: str) -> str:
  """Returns the advice for a namespace of tf.contrib, or for its lost names."""
  package = compat.PACKAGES.get(space, compat.Package())
  advice = package.advice or compat.REFUSED.get(space)
  return ": " + advice if advice else ""


def _short(name: str) -> str:
  """Returns the name of a function, class or namespace of tf.contrib, without its files."""
  parts = name.split(".")[:4]
  return ".".join(parts[:3] if parts[3:] in (["python"], ["ops"]) else parts)


def _has_heir(name: str) -> bool:
  """Whether tf1ps.v1 has a name of tf.contrib."""
  _, _, space, *rest = name.split(".") + [""]
  if space not in name_tables.CONTRIB:
    return space == ""
  if rest[0] in name_tables.CONTRIB_GONE.get(space, ()):
    return False
  known = name_tables.CONTRIB[space]
  # Programs also reach into the files of a namespace: tf.contrib.layers.python.layers.
  return known is None or rest[0] in ("", "api", "python", "ops") or rest[0] in known.split()


def _estimator(program):
  for node, name in _of_namespace(program, _ESTIMATOR):
    if not _first_known(name, name_tables.ESTIMATOR):
      yield node, "TensorFlow has no %s since 2.16" % ".".join(name.split(".")[:3])


def _estimator_without_heir(program):
  for node, name in _taken(program, lambda name: _first_known(name, name_tables.ESTIMATOR)):
    is_import = isinstance(node, (ast.Import, ast.ImportFrom))
    # The uses of an imported name were reported at its import.
    if is_import or not _first_known(_root(program, node)[1] or "", name_tables.ESTIMATOR):
      yield node, "TensorFlow has no %s, nor has tf1ps.v1" % _first_known(
        name, name_tables.ESTIMATOR)


def _strategies(program):
  """Finds strategies that a program gives an estimator as train_distribute."""
  for node, name in _of_namespace(program, _STRATEGIES):
    yield node, "TensorFlow 2 has no %s, nor has tf1ps.v1" % _short(name)
  if texts.mentions(program, "train_distribute", "eval_distribute"):
    for node in program.nodes:
      name = isinstance(node, ast.Call) and program.name_of(node.func)
      if name and _PS_STRATEGY.match(name) and not program.is_guarded(node):
        yield node


def _layers(program):
  if program.mentions("TF_USE_LEGACY_KERAS"):
    return
  for node, name in _of_namespace(program, *_LAYERS):
    if name not in _LAYERS:
      yield node, "%s raises: Keras 3 has it no longer" % name


def _old_names(program):
  for node, name in _taken(program, lambda name: _first_known(name, _RENAMED)):
    old = _first_known(name, _RENAMED)
    yield node, "TensorFlow has no %s since 1.0: it is called tf.%s" % (
      old, compat.RENAMED[old[len("tf."):]])


def _tutorials(program):
  for node, name in _of_namespace(program, *_TUTORIALS):
    yield node, "TensorFlow has no %s" % name.replace("tf.", "tensorflow.", 1)


def _nowhere(program):
  for node, name in _taken(program, lambda name: _first_known(name, name_tables.NOWHERE)):
    gone = _first_known(name, name_tables.NOWHERE)
    yield node, "TensorFlow has no %s: %s" % (gone, compat.LOST[gone[len("tf."):]])


def _put_back(program):
  for node, name in _taken(program, lambda name: _first_known(name, name_tables.PUT_BACK)):
    yield node, "TensorFlow has no %s" % _first_known(name, name_tables.PUT_BACK)


def _files(program):
  for node, full in program.imports():
    if _is_below(full, name_tables.FILES_GONE) and not program.is_guarded(node):
      yield node, "TensorFlow has no %s" % next(
        file for file in name_tables.FILES_GONE if _is_below(full, file))


_IMPORT_US = "Write `import tf1ps.v1 as tf`, or run the program by tf1ps-run."
_PAGE = "docs/legacy.md"

RULES = (
  Rule("graph-names-are-gone", GONE,
       "`tensorflow` is TensorFlow 2, without sessions, placeholders and most of TensorFlow 1",
       _IMPORT_US, _PAGE, True, _graph_names),
  Rule("name-is-gone", GONE, "TensorFlow has removed this name",
       "Write it anew, or stay with TensorFlow 1.15.", _PAGE, False, _nowhere),
  Rule("name-is-put-back", GONE, "TensorFlow has removed this name, and tf1ps.v1 has it",
       _IMPORT_US, _PAGE, True, _put_back),
  Rule("file-is-gone", GONE, "TensorFlow has moved or removed this file of its own",
       "Run the program by tf1ps-run, which finds it.", "docs/legacy.md#what-is-replaced", False,
       _files),
  Rule("contrib-is-gone", GONE, "TensorFlow 2 has no tf.contrib",
       _IMPORT_US, _PAGE + "#tfcontrib", True, lambda program: _contrib(program, True)),
  Rule("contrib-without-heir", GONE,
       "Neither TensorFlow 2 nor tf1ps.v1 has this name of tf.contrib",
       "Write it anew, or stay with TensorFlow 1.15. tf.estimator and tf.feature_column take the "
       "place of the estimators and columns of tf.contrib.", _PAGE + "#tfcontrib", False,
       lambda program: _contrib(program, False)),
  Rule("estimator-is-gone", GONE, "TensorFlow has had no tf.estimator since 2.16",
       _IMPORT_US + " It has the package tensorflow-estimator.", "docs/drop_in.md#estimators", True,
       _estimator),
  Rule("estimator-without-heir", GONE,
       "Neither TensorFlow nor tf1ps.v1 has this name of tf.estimator",
       "Train this model with TensorFlow Decision Forests, or stay with TensorFlow 1.15.",
       "docs/drop_in.md#what-works-and-what-does-not", False, _estimator_without_heir),
  Rule("strategy-of-estimator", GONE,
       "tf1ps trains estimators on a cluster without a strategy, and refuses it",
       "Leave train_distribute and eval_distribute out; name chief, worker and ps in TF_CONFIG.",
       "docs/drop_in.md#what-works-and-what-does-not", False, _strategies),
  Rule("layers-raise", GONE,
       "Each use of tf.layers and tf.nn.rnn_cell raises an error, because Keras 2 is gone",
       _IMPORT_US + " It takes them from tf_keras.", _PAGE + "#what-is-replaced", True, _layers),
  Rule("name-before-1.0", GONE, "A name from before TensorFlow 1.0",
       "Write today's name.", _PAGE + "#from-before-tensorflow-10", True, _old_names),
  Rule("tutorials-are-gone", GONE, "TensorFlow 2 has no tensorflow.examples.tutorials",
       _IMPORT_US + " It reads MNIST from a folder.", _PAGE + "#what-is-replaced", True,
       _tutorials),
)
