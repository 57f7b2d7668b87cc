"""Rules of names that still exist but have changed: arguments, flags, modes, Keras, Python."""

from __future__ import annotations

import ast
from typing import Optional

from tf1ps.doctor.findings import DIFFERS, GONE, Rule

_CROSS_ENTROPIES = tuple("tf.nn." + name for name in (
  "softmax_cross_entropy_with_logits", "sparse_softmax_cross_entropy_with_logits",
  "sigmoid_cross_entropy_with_logits"))
_SESSIONS = ("tf.Session", "tf.InteractiveSession", "tf.train.MonitoredSession",
             "tf.train.MonitoredTrainingSession", "tf.train.SingularMonitoredSession",
             "tf.train.Supervisor")
_CHOOSES_MODE = ("tf.disable_v2_behavior", "tf.disable_eager_execution", "tf.Graph",
                 "tf.enable_eager_execution")
# The flags of absl.logging and absl.app, which TensorFlow imports.
ABSL_FLAGS = ("alsologtostderr", "log_dir", "logger_levels", "logtostderr", "only_check_args",
              "pdb_post_mortem", "profile_file", "run_with_pdb", "run_with_profiling",
              "showprefixforinfo", "stderrthreshold", "use_cprofile_for_profiling", "v",
              "verbosity")


def _orders(program):
  """Finds calls with the order of arguments from before TensorFlow 1.0."""
  def ints(call):
    values = [program.value_of(argument) for argument in call.args[:3]]
    return [isinstance(value, int) and not isinstance(value, bool) for value in values]

  def has(call, *keywords):
    return any(keyword.arg in keywords for keyword in call.keywords)

  for call in program.calls("tf.concat"):
    if ints(call)[:2] == [True, False] or has(call, "concat_dim"):
      yield call, "tf.concat(dim, values) is tf.concat(values, axis) since TensorFlow 1.0"
  for call in program.calls("tf.split"):
    if has(call, "split_dim", "num_split") or (
        ints(call)[:1] == [True] and (len(call.args) > 2 or has(call, "value"))):
      yield call, "tf.split(dim, count, value) is tf.split(value, count, axis) since TensorFlow 1.0"
  for call in program.calls("tf.reverse"):
    dims = program.value_of(program.argument(call, "dims") or program.argument(call, "axis", 1))
    if isinstance(dims, (list, tuple)) and dims and all(isinstance(dim, bool) for dim in dims):
      yield call, "tf.reverse takes dimensions since TensorFlow 1.0, not a truth value for each"
  for call in program.calls("tf.image.resize_images"):
    if ints(call)[1:] == [True, True] or has(call, "new_height", "new_width"):
      yield call, "tf.image.resize_images takes [height, width] since TensorFlow 1.0"


def find_cross_entropies(program):
  """Yields the calls of cross entropies without argument names, each with a message."""
  for call in program.calls(*_CROSS_ENTROPIES):
    if call.args and not isinstance(call.args[0], ast.Starred) and (
        program.value_of(call.args[0]) is not None and _is_for_graphs(program)):
      yield call, "%s refuses arguments without names" % program.name_of(call.func)


def _replica_ids(program):
  for call in program.calls("tf.train.SyncReplicasOptimizer"):
    if program.argument(call, "replica_id") is not None:
      yield call


def _flags(program):
  for call in program.calls_below("tf.app.flags.DEFINE_"):
    name = program.value_of(program.argument(call, "name", 0)
                            or program.argument(call, "flag_name"))
    if name in ABSL_FLAGS:
      yield call, "--%s is a flag of absl's: DuplicateFlagError" % name


def _is_for_graphs(program) -> bool:
  return any(True for _ in program.uses("tf.train.Server", *_SESSIONS))


def _eager(program):
  """Finds programs that have sessions and stay in eager mode."""
  # Another file may have set the mode for a library.
  is_started = program.calls("tf.app.run") or "__main__" in [
    program.value_of(operand) for node in program.nodes if isinstance(node, ast.Compare)
    for operand in node.comparators]
  if not is_started or any(True for _ in program.uses(*_CHOOSES_MODE)):
    return
  seen = set()
  for node in program.uses(*_SESSIONS):
    statement = _import_of(program, node)
    if program.origin_of(node) == "tensorflow.compat.v1" and statement not in seen and (
        not program.is_guarded(node)):
      seen.add(statement)
      yield statement or node


def _import_of(program, node) -> Optional[ast.AST]:
  """Returns the import statement of the first name of an expression."""
  while isinstance(node, ast.Attribute):
    node = node.value
  statements = [binding.statement for binding in program.bindings(node) if binding.imported]
  return statements[0] if statements else None


def _keras(program):
  """Finds layers and models of Keras 3 in programs with sessions."""
  if not _is_for_graphs(program) or program.mentions("TF_USE_LEGACY_KERAS"):
    return
  for node, name in program.names():
    if name.startswith(("tf.keras.layers.", "tf.keras.models.", "tf.keras.Model",
                        "tf.keras.Sequential", "tf.keras.optimizers.")):
      yield node, "%s is Keras 3's, which is not made for sessions" % name


def _local_server(program):
  """Finds devices of the job `local` in programs that start a local server."""
  if not program.calls("tf.train.Server.create_local_server"):
    return
  for call in program.calls("tf.device"):
    device = program.value_of(program.argument(call, "device_name_or_function", 0))
    if isinstance(device, str) and "/job:local" in device and "/job:localhost" not in device:
      yield call


_NAMES = "docs/legacy.md#from-before-tensorflow-10"

RULES = (
  Rule("order-before-1.0", GONE, "Arguments in the order from before TensorFlow 1.0",
       "Pass them in today's order.", _NAMES, True, _orders),
  Rule("cross-entropy-without-names", GONE, "A cross entropy refuses arguments without names",
       "Write logits= and labels=, or run the program by tf1ps-run --pre_1_0.", _NAMES, False,
       find_cross_entropies),
  Rule("replica-id", GONE, "SyncReplicasOptimizer has no argument replica_id since TensorFlow 1.0",
       "Remove it. The optimizer of tf1ps takes it.",
       "docs/replication.md#synchronous-updates", True, _replica_ids),
  Rule("flag-of-absl", GONE, "absl defines a flag with this name as well: DuplicateFlagError",
       "Give it another name, or write `import tf1ps.v1 as tf`.",
       "docs/legacy.md#the-one-import", True, _flags),
  Rule("eager-mode", GONE, "TensorFlow 2 starts in eager mode, which has no sessions",
       "Call tf.disable_v2_behavior() first, or write `import tf1ps.v1 as tf`.",
       "docs/drop_in.md#what-to-change", True, _eager),
  Rule("keras-3", DIFFERS,
       "Keras 3 in a graph never updates moving averages, and its fit raises an error",
       "Write `import tf1ps.v1 as tf`: its tf.keras is tf_keras.",
       "docs/legacy.md#the-one-import", True, _keras),
  Rule("local-server-job", DIFFERS,
       "The job of a local server is called localhost today, and local on TensorFlow 1.15",
       "Leave the job out of the device.", "docs/cluster.md", False, _local_server),
  Rule("python-2", GONE,
       "Python 2 code: Python 3 cannot run it, and divides integers differently by /",
       "Run it by tf1ps-run --2to3.", "docs/legacy.md#python-2", False,
       lambda program: [program.tree] if program.is_python2 else []),
)
