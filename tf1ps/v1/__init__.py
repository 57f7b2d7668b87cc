"""The import that a legacy program changes: `import tf1ps.v1 as tf`.

The module is `tensorflow.compat.v1` in graph mode, with the drop-ins of tf1ps and with the names
that newer versions of TensorFlow have removed. The import switches TensorFlow to graph mode, so
import this module before any other use of TensorFlow. docs/legacy.md lists the differences.
"""

from __future__ import annotations

import typing

from tf1ps import compat as _compat
from tf1ps.v1 import graph_mode as _graph_mode

_tf = _graph_mode.import_tensorflow()

from tf1ps.v1 import namespace as _namespace  # noqa: E402
from tf1ps.v1 import renamed as _renamed  # noqa: E402
from tf1ps.v1 import spaces as _spaces  # noqa: E402
from tf1ps.v1.old_orders import concat, reverse, split, use_pre_1_0  # noqa: E402, F401

if typing.TYPE_CHECKING:
  from tensorflow.compat.v1 import *  # noqa: F403  an editor completes the names

__version__ = _tf.__version__  # programs print the version, or depend on it

_namespace.install_finder()
_spaces.declare_all()
__getattr__, __dir__ = _namespace.overlay(
    __name__, _tf, _compat.DROP_INS[""], namespaces=("app", "contrib", "estimator", "flags"),
    gone=_renamed.finder())
