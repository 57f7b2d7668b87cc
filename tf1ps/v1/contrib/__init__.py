"""`tf.contrib`: what legacy programs use of it, by the library that has it today.

TensorFlow 1.15 has it all, and only tf1ps' drop-ins take their places. On newer TensorFlows a
package without heirs can be imported, because many programs import it and do not use it. Its use
is refused.
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


# TensorFlow 1.15's own are enough, but for those with drop-ins or slim's loops, and what it moved.
_ON_1_15 = ("data", "nccl", "slim")
for _name, _package in _compat.PACKAGES.items():
  _drop_ins = _compat.DROP_INS.get("contrib." + _name)
  if not _libraries.IS_IN_TENSORFLOW or _drop_ins or _name in _ON_1_15:
    _namespace.declare("%s.%s" % (__name__, _name), functools.partial(
      _libraries.overlay, drop_ins=_drop_ins, **_package._asdict()))
__getattr__, __dir__ = _namespace.overlay(
    __name__, getattr(tensorflow, "contrib", None), gone=_gone)
