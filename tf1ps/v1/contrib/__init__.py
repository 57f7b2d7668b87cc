"""`tf.contrib`: the parts that legacy programs use, from the libraries that have them today.

TensorFlow 1.15 has all parts, and tf1ps replaces only the names of its drop-ins. On newer versions
of TensorFlow, a package without a successor can be imported, because many programs import such a
package and do not use it. The use of such a package is refused.
"""

from __future__ import annotations

import functools

import tensorflow

from tf1ps import compat as _compat
from tf1ps.v1 import namespace as _namespace
from tf1ps.v1.contrib import libraries as _libraries
from tf1ps.v1.contrib import refused as _refused


def _gone(name):
  if name in _compat.REFUSED and not _refused.is_guarded():
    return _refused.Refused(name, _compat.REFUSED[name])
  raise AttributeError(
    "tf.contrib.%s is not there: TensorFlow 2 has no tf.contrib, and tf1ps.v1 has only part of it. "
    "%s." % (name, _compat.REFUSED.get(name) or "Write it anew, or stay with TensorFlow 1.15"))


# TensorFlow 1.15's own packages are enough, except packages with drop-ins or with slim's loops, and
# packages whose names TensorFlow 1.15 has moved.
_ON_1_15 = ("data", "nccl", "slim")
for _name, _package in _compat.PACKAGES.items():
  _drop_ins = _compat.DROP_INS.get("contrib." + _name)
  if not _libraries.IS_IN_TENSORFLOW or _drop_ins or _name in _ON_1_15:
    _namespace.declare("%s.%s" % (__name__, _name), functools.partial(
      _libraries.overlay, drop_ins=_drop_ins, **_package._asdict()))
__getattr__, __dir__ = _namespace.overlay(
    __name__, getattr(tensorflow, "contrib", None), gone=_gone)
