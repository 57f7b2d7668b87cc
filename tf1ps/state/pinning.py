"""Pins an object with a shared name to a task and a container.

On TensorFlow 2.21 no process shares an unpinned queue with a shared name, and under a device setter
each worker has its own. So such an object is pinned:

1. to the device that the caller gives, or that a `tf.device` scope names;
2. else, if this process has a `tf1ps.Server`, to a ps, or to the chief of a cluster without ps. A
   hash of the name chooses the ps, so all processes choose the same ps.

The worker's own device counts as named only under a device setter of tf1ps: TensorFlow's device
setter gives that device to every op that is not a variable. If there is no named device and no
`tf1ps.Server`, TensorFlow chooses the device, and the log says so.

The object lives in the container that the caller gives, or that a `tf.container` scope names, else
in the container of this process's job.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container, latest_record
from tf1ps.placement import SCOPE_ANCHOR, has_setter
from tf1ps.state import containers

_log = logging.getLogger("tf1ps")
# Names that a warning was logged for. The set is global because the log is: a process may build an
# object of a name in several graphs that share no values, and the warning is wanted only once.
_warned = set()


@contextlib.contextmanager
def shared_placement(name: str, device: Optional[str] = None, container: Optional[str] = None):
  """Sets the device and the container for the operation that creates a named object.

  An object without a shared name is private to its session and not pinned. If `device` or
  `container` is None, the rules of the module's docstring apply. Raises ValueError for an illegal
  container.
  """
  if container is not None:
    containers.check_container_name(container)
  here = _anchor()
  if device is None and name:
    device = _pin(name, tf.DeviceSpec.from_string(here.device))
  if container is None and not here.get_attr("container"):
    container = job_container()
  with contextlib.ExitStack() as stack:
    if device is not None:
      stack.enter_context(tf.device(device))
    if container:
      stack.enter_context(tf.get_default_graph().container(container))
    yield


def pinned_task(name: str, cluster):
  """Returns the task that a name is pinned to: a ps, or the chief if the cluster has none."""
  if not cluster.ps:
    return cluster.chief
  digest = hashlib.sha256(name.encode("utf-8")).digest()
  return cluster.ps[int.from_bytes(digest[:8], "big") % len(cluster.ps)]


def _anchor() -> tf.Operation:
  """Makes an operation that never runs; it shows the device and the container in force."""
  with tf.control_dependencies(None):
    return tf.raw_ops.MutexV2(name="pinning_" + SCOPE_ANCHOR).op


def _pin(name, here) -> Optional[str]:
  record = latest_record()
  if record is None:
    if here.job is None and name not in _warned:
      _warned.add(name)
      _log.warning("%r has a shared name, but this process has no tf1ps.Server that knows the "
                   "cluster. If other processes use it, give all of them the same "
                   "device=\"/job:ps/task:0\".", name)
    return None
  own = record.cluster.task
  is_own = own.job != "ps" and here.job == own.job and here.task in (None, own.index)
  if has_setter(tf.get_default_graph()):
    is_own = False  # a scope names this worker
  if here.job is not None and not is_own:
    return None
  return pinned_task(name, record.cluster).name
