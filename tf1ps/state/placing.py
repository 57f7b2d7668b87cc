"""Where a thing with a name lives: on which ps, and in which container.

An unpinned queue with a shared name is shared by nobody on TensorFlow 2.21, and under a device
setter each worker has its own. So a thing with a name is pinned:

1. to the device that the caller gives, or that `tf.device` names around it;
2. else, where this process has a `tf1ps.Server`, to one of its ps by a hash of the name, which is
   the same in every process; without ps, to the chief.

A device of this very worker does not count as named: that is what a device setter says of
everything but variables. Where nothing is known, the thing stays where TensorFlow puts it, and the
log says so.

It lives in the container that the caller gives, or that `tf.container` names around it, else in
the container of this process's job.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container, latest_record
from tf1ps.state import containers

_log = logging.getLogger("tf1ps")
_told = set()


@contextlib.contextmanager
def shared_placement(name: str, device: Optional[str] = None, container: Optional[str] = None):
  """A context in which the operation that makes a named thing is built.

  Args:
    name: the shared name; "" for a thing that is private to its session, which stays where it is.
    device: such as "/job:ps/task:1"; None: see above.
    container: its container; None: see above.

  Raises:
    ValueError: an illegal container.
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
  """The task of a cluster that a name is pinned to: one of its ps, without ps the chief."""
  if not cluster.ps:
    return cluster.chief
  digest = hashlib.sha256(name.encode("utf-8")).digest()
  return cluster.ps[int.from_bytes(digest[:8], "big") % len(cluster.ps)]


def _anchor() -> tf.Operation:
  """An operation that is never run: it shows what device and container are in force."""
  with tf.control_dependencies(None):
    return tf.raw_ops.MutexV2(name="placing_anchor").op


def _pin(name, here) -> Optional[str]:
  record = latest_record()
  if record is None:
    if here.job is None and name not in _told:
      _told.add(name)
      _log.warning("%r is to be shared by its name, but this process has no tf1ps.Server to know a "
                   "place by: where other processes look for it on a cluster, give all of them the "
                   "same device=\"/job:ps/task:0\"", name)
    return None
  own = record.cluster.task
  is_own = own.job != "ps" and here.job == own.job and here.task in (None, own.index)
  if here.job is not None and not is_own:
    return None
  return pinned_task(name, record.cluster).name
