"""The canonical name of a TensorFlow function or class, for all ways to import it.

    tensorflow.train.Server, tensorflow.compat.v1.train.Server, tensorflow.distribute.Server,
    tensorflow.python.training.server_lib.Server, tf1ps.v1.train.Server, tf1ps.Server

are all `tf.train.Server`, the name of TensorFlow 1.15. Imports from other packages keep their
names.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

from tf1ps import compat

V1 = "tf1ps.v1"
V2 = "tensorflow.compat.v2"


def _drop_ins() -> Dict[str, str]:
  """Returns {name in tf1ps: TensorFlow's name}, with the two names of each drop-in in tf1ps."""
  result = {}
  for space, rooms in compat.DROP_INS.items():
    for room, names in rooms.items():
      for name in names if not room.startswith("v1.") else ():
        full = ".".join(filter(None, ["tf", space, name]))
        result["tf1ps." + name] = result["tf1ps.%s.%s" % (room, name)] = SPELLINGS.get(full, full)
  return result


# Further files of `tensorflow.python`, which TensorFlow still has under these names.
_FILES = {
  "estimator": "estimator",
  "train": "training.basic_session_run_hooks training.saver training.session_manager "
           "training.session_run_hook",
}
# {the beginning of a name: the name of TensorFlow 1.15}. The longest beginning that fits counts.
_ROOTS = {"tensorflow": "tf", "tensorflow.compat.v1": "tf", V2: "tf2", V1: "tf",
          V1 + ".compat.v1": "tf"}
_ROOTS.update({"tensorflow.python." + file: "tf." + space
               for table in (compat.PYTHON_FILES, _FILES) for space, files in table.items()
               for file in files.split()})
# {another spelling: TensorFlow 1.15's first spelling}
SPELLINGS = {
  "tf.distribute.Server": "tf.train.Server",
  "tf.flags": "tf.app.flags",
  "tf.initializers.global_variables": "tf.global_variables_initializer",
  "tf.initializers.local_variables": "tf.local_variables_initializer",
  "tf.initializers.tables_initializer": "tf.tables_initializer",
  "tf.sparse.SparseConditionalAccumulator": "tf.SparseConditionalAccumulator",
}
SPELLINGS.update({"tf.queue." + name: "tf." + name for name in (
  "QueueBase", *compat.DROP_INS["queue"]["state"])})
_DROP_INS = _drop_ins()


class Name(NamedTuple):
  """A canonical name, and the package that it comes from."""

  name: str  # "tf.train.Server", "os.path.join"
  spelling: str  # the same name as the program spells it: "tf.distribute.Server"
  origin: str  # "tensorflow", "tensorflow.compat.v1", "tf1ps.v1", "tf1ps", or another package


def canonical(full: str) -> Name:
  """Returns the canonical name of a function or class.

  Args:
    full: the name as the program imports it, such as "tensorflow.compat.v1.train.Server".
  """
  parts = full.split(".")
  if parts[0] == "tf1ps" and parts[1:2] != ["v1"]:
    name = _DROP_INS.get(full, full)
    return Name(name, name, "tf1ps")
  for count in range(len(parts), 0, -1):
    root = ".".join(parts[:count])
    if root in _ROOTS:
      spelling = ".".join([_ROOTS[root], *parts[count:]])
      return Name(_fold(spelling), spelling, _origin(root))
  return Name(full, full, parts[0])


def _origin(root: str) -> str:
  if root.startswith(V1):
    return V1
  return root if root in (V2, "tensorflow.compat.v1") else "tensorflow"


def _fold(name: str) -> str:
  """Returns a name in which the first spelling replaces the whole name or its beginning."""
  parts = name.split(".")
  for count in range(len(parts), 1, -1):
    known = SPELLINGS.get(".".join(parts[:count]))
    if known:
      return ".".join([known, *parts[count:]])
  return name
