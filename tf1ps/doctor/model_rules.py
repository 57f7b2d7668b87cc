"""Rules of the parts of a model that matter to several tasks or to TensorFlow 2."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import DIFFERS, TRAP, Rule

_KERAS = ("tf.keras.layers.", "keras.layers.", "tensorflow.keras.layers.")
_FLOATS = ("tf.float16", "tf.float32", "tf.float64")
_NO_LAYERS = ("Input", "InputLayer")
_STRATEGY = "tf.distribute.experimental.ParameterServerStrategy"


def _unnamed_layers(program):
  if program.calls(jobs.SETTER) and jobs.task_servers(program):
    for call in program.calls_below(*_KERAS):
      if (program.name_of(call.func).rpartition(".")[2] not in _NO_LAYERS
          and program.argument(call, "name") is None and not program.may_have_more(call)):
        yield call


def _lost_results(program):
  if program.calls("tf.disable_v2_behavior", "tf.disable_eager_execution"):
    yield from program.method_calls(_STRATEGY, "run", "experimental_run_v2")


def _without_locks(program):
  for call in program.calls_below("tf.train.") if jobs.task_servers(program) else ():
    if program.name_of(call.func).endswith("Optimizer"):
      locking = program.argument(call, "use_locking")
      if locking is not None and program.value_of(locking) is False:
        yield call


def _exports(program):
  """Yields exports of a cluster's graph that keep its devices."""
  if not jobs.task_servers(program):
    return
  for call in program.attribute_calls("export_meta_graph", "add_meta_graph_and_variables"):
    devices = program.argument(call, "clear_devices")
    if not program.may_have_more(call) and (
        devices is None or program.value_of(devices) is False):
      yield call


def _float_steps(program):
  """Yields global steps that a program makes by itself, with a floating type."""
  for call in program.calls("tf.get_variable", "tf.Variable"):
    name = program.argument(call, "name", 0 if program.name_of(call.func) == "tf.get_variable"
                            else None)
    if program.value_of(name) == "global_step" and not program.may_have_more(call):
      dtype = program.argument(call, "dtype")
      if _is_float(program, call) if dtype is None else program.name_of(dtype) in _FLOATS:
        yield call


def _is_float(program, call):
  """Whether a variable without a dtype has floats."""
  if program.name_of(call.func) == "tf.Variable":
    return isinstance(program.value_of(program.argument(call, "initial_value", 0)), float)
  first = program.call_of(program.argument(call, "initializer"))
  return first is None or program.argument(first, "dtype") is None


def _averages(program):
  if texts.mentions(program, "REGULARIZATION_LOSSES", "get_regularization_losses", "get_losses"):
    for call in program.method_calls("tf.train.ExponentialMovingAverage", "apply"):
      averaged = call.args[:1] + [
        binding.value for node in call.args[:1] for binding in program.bindings(node)
        if binding.value is not None]
      if any("loss" in texts.words_of(value) for value in averaged):
        yield call


def _handles(program):
  """Yields fetches of a variable by the name of its handle."""
  if not texts.mentions(program, "enable_resource_variables", "use_resource"):
    return
  for call in program.attribute_calls("run", "get_tensor_by_name"):
    if any(program.value_of(inner) == "global_step:0"
           for fetches in call.args[:1] for inner in ast.walk(fetches)):
      yield call


RULES = (
  Rule("keras-layer-without-name", TRAP,
       "Keras 3 numbers layers per process: workers with other numbers share no variables",
       "Give the layer a name.",
       "docs/replication.md#keras-and-strategies", True, _unnamed_layers),
  Rule("strategy-loses-result", DIFFERS,
       "On TensorFlow 2, `run` of this strategy returns None in a graph: the result is lost",
       "Use the device setter, or a scheme of tf1ps.",
       "docs/replication.md#keras-and-strategies", False, _lost_results),
  Rule("updates-without-lock", TRAP,
       "Without a lock, simultaneous updates of several workers are partly lost",
       "Pass use_locking=True to the optimizer.",
       "docs/replication.md", False, _without_locks),
  Rule("export-keeps-devices", TRAP,
       "The export names this cluster's devices, so no other process can load it",
       "Pass clear_devices=True.",
       "docs/programs.md#prediction-and-export", False, _exports),
  Rule("global-step-of-floats", TRAP,
       "This global step is of float32: it stands still at 16,777,216, and "
       "tf.train.get_global_step refuses it",
       "Give it dtype=tf.int64, or use tf.train.get_or_create_global_step().",
       "docs/programs.md#when-training-stops", False, _float_steps),
  Rule("average-of-regularization-losses", TRAP,
       "TensorFlow 2 keeps losses of regularizers that are not tensors, and this refuses them",
       "Write `import tf1ps.v1 as tf`, or make tensors of them by tf.identity.",
       "docs/legacy.md#what-is-replaced", True, _averages),
  Rule("fetch-by-name", DIFFERS,
       "The name of a resource variable stands for its handle: this returns bytes",
       "Fetch the variable object.",
       "docs/legacy.md#the-one-import", False, _handles),
)
