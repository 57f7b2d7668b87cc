"""One name for each thing of TensorFlow, whatever import a program takes it by.

    tensorflow.train.Server, tensorflow.compat.v1.train.Server, tensorflow.distribute.Server,
    tensorflow.python.training.server_lib.Server, tf1ps.v1.train.Server, tf1ps.Server

are all `tf.train.Server`: the name of TensorFlow 1.15. What a program imports from elsewhere keeps
its name.
"""

from __future__ import annotations

from typing import NamedTuple

V1 = "tf1ps.v1"
V2 = "tensorflow.compat.v2"
_QUEUES = ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "QueueBase", "RandomShuffleQueue")
_OF_TRAIN = ("Coordinator", "MonitoredTrainingSession", "Server", "Supervisor",
             "SyncReplicasOptimizer", "replica_device_setter", "start_queue_runners")
# The names of tf1ps that are TensorFlow's, in any of its rooms.
_DROP_INS = dict({name: "tf.train." + name for name in _OF_TRAIN},
                 **{name: "tf." + name for name in _QUEUES})
_DROP_INS["GreedyLoadBalancingStrategy"] = "tf.contrib.training.GreedyLoadBalancingStrategy"
_DROP_INS["byte_size_load_fn"] = "tf.contrib.training.byte_size_load_fn"
_INTERNAL = "tensorflow.python."
# {where a module or a name begins: the name of TensorFlow 1.15}. The longest that fits counts.
_ROOTS = {
  "tensorflow": "tf",
  "tensorflow.compat.v1": "tf",
  V2: "tf2",
  V1: "tf",
  V1 + ".compat.v1": "tf",
  _INTERNAL + "estimator": "tf.estimator",
  _INTERNAL + "layers.convolutional": "tf.layers",
  _INTERNAL + "layers.core": "tf.layers",
  _INTERNAL + "layers.layers": "tf.layers",
  _INTERNAL + "layers.normalization": "tf.layers",
  _INTERNAL + "layers.pooling": "tf.layers",
  _INTERNAL + "platform.app": "tf.app",
  _INTERNAL + "platform.flags": "tf.app.flags",
  _INTERNAL + "ops.rnn_cell": "tf.nn.rnn_cell",
  _INTERNAL + "ops.rnn_cell_impl": "tf.nn.rnn_cell",
  _INTERNAL + "training.basic_session_run_hooks": "tf.train",
  _INTERNAL + "training.coordinator": "tf.train",
  _INTERNAL + "training.device_setter": "tf.train",
  _INTERNAL + "training.input": "tf.train",
  _INTERNAL + "training.monitored_session": "tf.train",
  _INTERNAL + "training.queue_runner": "tf.train",
  _INTERNAL + "training.queue_runner_impl": "tf.train",
  _INTERNAL + "training.saver": "tf.train",
  _INTERNAL + "training.server_lib": "tf.train",
  _INTERNAL + "training.session_manager": "tf.train",
  _INTERNAL + "training.session_run_hook": "tf.train",
  _INTERNAL + "training.supervisor": "tf.train",
  _INTERNAL + "training.sync_replicas_optimizer": "tf.train",
  _INTERNAL + "training.training": "tf.train",
}
# {another spelling: TensorFlow 1.15's first one}
SPELLINGS = dict({"tf.queue." + name: "tf." + name for name in _QUEUES}, **{
  "tf.distribute.Server": "tf.train.Server",
  "tf.flags": "tf.app.flags",
  "tf.initializers.global_variables": "tf.global_variables_initializer",
  "tf.initializers.local_variables": "tf.local_variables_initializer",
  "tf.initializers.tables_initializer": "tf.tables_initializer",
  "tf.sparse.SparseConditionalAccumulator": "tf.SparseConditionalAccumulator",
})


class Name(NamedTuple):
  """A canonical name, and the package that it was taken from."""

  name: str  # "tf.train.Server", "os.path.join"
  spelling: str  # the same without regard to SPELLINGS: "tf.distribute.Server"
  origin: str  # "tensorflow", "tensorflow.compat.v1", "tf1ps.v1", "tf1ps", or another package


def canonical(full: str) -> Name:
  """Returns the name of a thing for the full name by which a program takes it."""
  parts = full.split(".")
  if parts[0] == "tf1ps" and parts[1:2] != ["v1"]:
    name = _DROP_INS.get(parts[-1], full)
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
  """Returns the first spelling of a name, or of what the name begins with."""
  parts = name.split(".")
  for count in range(len(parts), 1, -1):
    known = SPELLINGS.get(".".join(parts[:count]))
    if known:
      return ".".join([known, *parts[count:]])
  return name
