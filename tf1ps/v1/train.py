"""`tf.train`: servers, sessions, coordinators and producers are tf1ps' own."""

from __future__ import annotations

import importlib

import tensorflow.compat.v1 as tf

from tf1ps import session as _session
from tf1ps.v1 import namespace as _namespace
from tf1ps.v1 import renamed as _renamed

_session.place_as_tensorflow_1()
_session.follow_servers()  # a worker without a session reports its end, too
importlib.import_module("tf1ps.state.ending")  # has Server.join wait for the end of the job
__getattr__, __dir__ = _namespace.overlay(__name__, tf.train, {
  "cluster": ["Server"],
  "pipeline": [
    "Coordinator", "batch", "batch_join", "input_producer", "maybe_batch", "maybe_batch_join",
    "maybe_shuffle_batch", "maybe_shuffle_batch_join", "range_input_producer", "shuffle_batch",
    "shuffle_batch_join", "slice_input_producer", "start_queue_runners", "string_input_producer"],
  "placement": ["replica_device_setter"],
  "replication": ["SyncReplicasOptimizer"],
  "session": ["MonitoredTrainingSession", "Supervisor"],
}, gone=_renamed.finder("train"))
