"""The threads of a task's server: one per granted core, without spinning on a shared host.

TensorFlow gives each process two pools with a thread for each core that the process sees, and an
idle thread spins for a while before it sleeps. TensorFlow does not know two facts:

1. Tasks of a job share a host. While a worker waits for its ps, the threads that spin take the
   cores that the ps needs. Without spinning, a small step takes 8 % less time on a host of two
   cores, and no step takes more. (Giving each task a part of the cores is slower, because the
   worker and the ps use all cores in turn during a step.)
2. A CPU quota, such as a Linux container's, grants fewer cores than the process sees. If a pool has
   a thread for each core that the process sees, the system stops it in the middle of its work.
"""

from __future__ import annotations

import logging
import os
from typing import Iterator, List, Optional, Tuple

from tf1ps.cluster.description import Cluster

_log = logging.getLogger("tf1ps")
_CGROUP = "/sys/fs/cgroup"
_OF_PROCESS = "/proc/self/cgroup"
# An operation that blocks its thread, such as a `get` from a StagingArea, must not prevent the
# operation that would end this wait from running.
_LEAST_INTER_OP = 2


def with_threads(config, cluster: Cluster):
  """Returns the `tf.ConfigProto` for the server of the cluster's task.

  Numbers of threads in `config` stay. If nothing has to change, the function returns `config`
  itself, which may be None.
  """
  import tensorflow.compat.v1 as tf  # late, as in session_config.py

  cores, is_shared = granted_cores(), len(cluster.tasks_on_this_host()) > 1
  if cores is None and not is_shared:
    return config
  made = tf.ConfigProto()
  if config is not None:
    made.CopyFrom(config)
  if is_shared:
    made.experimental.disable_thread_spinning = True
  if cores is not None:
    if not made.inter_op_parallelism_threads:
      made.inter_op_parallelism_threads = max(cores, _LEAST_INTER_OP)
    if not made.intra_op_parallelism_threads:
      made.intra_op_parallelism_threads = cores
    _log.info("the CPU quota grants this process %d of its cores: %d threads run operations side "
              "by side, and %d work inside each", cores, made.inter_op_parallelism_threads,
              made.intra_op_parallelism_threads)
  return made


def granted_cores() -> Optional[int]:
  """Returns the CPU quota's cores, at least 1; None if it grants all cores the process sees."""
  quota = min(_quotas(), default=None)
  if quota is None or quota >= (
      len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1):
    return None
  return max(1, int(quota))


def _quotas() -> Iterator[float]:
  """The quotas in cores of the process's control groups; see cgroups(7)."""
  for controllers, path in _groups():
    if not controllers:  # version 2: each folder up to the root may have a limit
      while True:
        yield from _ratio(_read(_CGROUP + path.rstrip("/") + "/cpu.max").split())
        if path in ("/", ""):
          break
        path = os.path.dirname(path)
    elif "cpu" in controllers.split(","):
      for folder in (_CGROUP + "/cpu" + path.rstrip("/"), _CGROUP + "/cpu"):  # in a container: root
        yield from _ratio([_read(folder + "/cpu.cfs_quota_us"),
                           _read(folder + "/cpu.cfs_period_us")])


def _groups() -> List[Tuple[str, str]]:
  """The control groups of the process: (controllers, path)."""
  lines = (line.split(":", 2) for line in _read(_OF_PROCESS).splitlines())
  return [(parts[1], parts[2]) for parts in lines if len(parts) == 3]


def _ratio(fields) -> Iterator[float]:
  try:
    quota, period = map(int, fields)
  except ValueError:  # "max", or no such file
    return
  if quota > 0 and period > 0:
    yield quota / period


def _read(path: str) -> str:
  try:
    with open(path) as file:
      return file.read().strip()
  except OSError:
    return ""
