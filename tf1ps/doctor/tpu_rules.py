"""The rule of TPUs: calls that ask for a TPU, which tf1ps refuses."""

from __future__ import annotations

import ast
import re

from tf1ps import compat
from tf1ps.doctor import texts
from tf1ps.doctor.findings import GONE, Rule

_IN_TENSORFLOW = re.compile(r"^tf2?\.")
_ESTIMATORS = ("tf.contrib.tpu.TPUEstimator", "tf.estimator.tpu.TPUEstimator")
# The names below `tf` whose calls tf1ps.v1 refuses, and the names of TPUs that it does not have.
_CALLS = {"%s.%s" % (space, name) for space, rooms in compat.DROP_INS.items()
          for name in rooms.get(compat.REFUSED_TPU, ()) if space}
_CALLS |= {name for name in compat.LOST if name.startswith("tpu.")}
# A device text that tf1ps.v1 treats as a TPU; `*` is an unknown part of the text.
_DEVICE = re.compile(r"(?:^|[/*])(?:device:)?TPU(?:_\w+)?(?::|$)", re.IGNORECASE)


def _asks_for_tpu(program, call) -> bool:
  name = program.name_of(call.func) or ""
  if name == "tf.device":
    device = program.argument(call, "device_name_or_function", 0)
    return bool(_DEVICE.search(texts.text_of(program, device) or ""))
  if name in _ESTIMATORS:
    use_tpu = program.argument(call, "use_tpu", 4)
    if use_tpu is None:
      return not program.may_have_more(call)
    return program.value_of(use_tpu, flags=True) is True
  return _IN_TENSORFLOW.sub("", name) in _CALLS


def _is_optional(program, node) -> bool:
  """Whether a program checks for a TPU before it uses the TPU, or can continue without a TPU."""
  while node is not None:
    outer = program.parent(node)
    if isinstance(outer, (ast.If, ast.IfExp)) and node is not outer.test and (
        "tpu" in texts.words_of(outer.test)):
      return True
    if isinstance(outer, ast.Try) and node in outer.body and any(
        handler.type is None or re.search("ValueError|Exception", ast.dump(handler.type))
        for handler in outer.handlers):
      return True
    node = outer
  return False


def _calls(program):
  for node in program.nodes:
    if (isinstance(node, ast.Call) and _asks_for_tpu(program, node)
        and not _is_optional(program, node)):
      yield node


RULES = (
  Rule("tpu-is-refused", GONE,
       "This asks for a TPU, and tf1ps runs parameter servers on CPUs and GPUs",
       "Use CPUs or GPUs, or TensorFlow's own TPUStrategy without tf1ps.", "docs/legacy.md#tpus",
       False, _calls),
)
