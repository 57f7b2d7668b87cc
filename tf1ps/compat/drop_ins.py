"""Classes of tf1ps that stand in TensorFlow's namespace in place of TensorFlow's.

TensorFlow itself, and parts of tf1ps, make objects of the class that is replaced, and hand them to
programs: a `SingularMonitoredSession` its `raw_session()`, a MonitoredSession its Coordinator. A
program asks `isinstance(it, tf.Session)`, and `tf.Session` is the drop-in there.
"""

from __future__ import annotations


class DropIn(type):
  """The metaclass of a drop-in: objects of the class in `_replaces` count as its own, too.

  A drop-in derives from that class. A program's subclass of a drop-in has its own objects alone.
  """

  def __instancecheck__(cls, instance):
    return super().__instancecheck__(instance) or isinstance(instance, _replaced(cls))

  def __subclasscheck__(cls, subclass):
    return super().__subclasscheck__(subclass) or issubclass(subclass, _replaced(cls))


def _replaced(cls):
  return vars(cls).get("_replaces", ())
