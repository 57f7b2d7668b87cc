"""Rules of what a model is made of, where that matters to several tasks or to TensorFlow 2."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import DIFFERS, TRAP, Rule

_KERAS = ("tf.keras.layers.", "keras.layers.", "tensorflow.keras.layers.")
_NO_LAYERS = ("Input", "InputLayer")
_STRATEGY = "tf.distribute.experimental.ParameterServerStrategy"


def _keras_layers(program):
  for node in program.nodes:
    if isinstance(node, ast.Call):
      name = program.name_of(node.func) or ""
      if name.startswith(_KERAS) and name.rpartition(".")[2] not in _NO_LAYERS:
        yield node


def _unnamed_layers(program):
  if any(True for _ in program.calls(jobs.SETTER)) and jobs.task_servers(program):
    for call in _keras_layers(program):
      if program.argument(call, "name") is None and not program.may_have_more(call):
        yield call


def _lost_results(program):
  if any(True for _ in program.calls("tf.disable_v2_behavior", "tf.disable_eager_execution")):
    yield from program.method_calls(_STRATEGY, "run", "experimental_run_v2")


def _without_locks(program):
  if not jobs.task_servers(program):
    return
  for node in program.nodes:
    if isinstance(node, ast.Call) and (program.name_of(node.func) or "").startswith("tf.train."):
      if program.name_of(node.func).endswith("Optimizer"):
        locking = program.argument(node, "use_locking")
        if locking is not None and program.value_of(locking) is False:
          yield node


def _exports(program):
  """Exports of a cluster's graph with its devices."""
  if not jobs.task_servers(program):
    return
  for call in program.nodes:
    if not isinstance(call, ast.Call) or program.may_have_more(call):
      continue
    method = getattr(call.func, "attr", "")
    if method in ("export_meta_graph", "add_meta_graph_and_variables"):
      devices = program.argument(call, "clear_devices")
      if devices is None or program.value_of(devices) is False:
        yield call


def _handles(program):
  """Fetches of a variable by the name of its handle."""
  if not texts.mentions(program, "enable_resource_variables", "use_resource"):
    return
  for call in program.nodes:
    if (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("run", "get_tensor_by_name") and call.args):
      for each in ast.walk(call.args[0]):
        if isinstance(each, ast.AST) and program.value_of(each) == "global_step:0":
          yield call
          break


RULES = (
  Rule("keras-layer-without-name", TRAP,
       "Keras 3 numbers layers per process: workers with other numbers share no variables",
       "Give the layer a name.",
       "docs/glossary.md#keras-and-strategies", True, _unnamed_layers),
  Rule("strategy-loses-result", DIFFERS,
       "On TensorFlow 2, `run` of this strategy returns None in a graph: the result is lost",
       "Use the device setter, or a scheme of tf1ps.",
       "docs/glossary.md#keras-and-strategies", False, _lost_results),
  Rule("updates-without-lock", TRAP,
       "Without a lock, simultaneous updates of several workers are partly lost",
       "Pass use_locking=True to the optimizer.",
       "docs/replication.md", False, _without_locks),
  Rule("export-keeps-devices", TRAP,
       "The export names this cluster's devices, so no other process can load it",
       "Pass clear_devices=True.",
       "docs/programs.md#using-what-was-trained", False, _exports),
  Rule("fetch-by-name", DIFFERS,
       "The name of a resource variable stands for its handle: this returns bytes",
       "Fetch the variable object.",
       "docs/v1.md", False, _handles),
)
