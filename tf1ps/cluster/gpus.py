"""Divides the GPUs of a host, and their memory, among the workers there.

TensorFlow takes all memory of each GPU that a process sees, so that a second process gets none.

1. `divide_gpus` gives each worker its own GPUs, as a value of `CUDA_VISIBLE_DEVICES`. The process
   sets this variable before TensorFlow looks for a GPU. tf1ps-local divides the GPUs for its
   workers. Under a scheduler that has divided no GPUs, a worker does so itself (`take_share`).
2. `with_gpus` makes the config of a server. Workers on one host take memory as they need it. A ps
   sees no GPU: it needs no GPU, and would take the memory that its workers need.
3. `warn_of_unseen_gpus` warns if a library is missing, because TensorFlow itself then trains on the
   CPU.

Options of the program win, and so does TensorFlow's TF_FORCE_GPU_ALLOW_GROWTH.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from typing import List, NamedTuple, Optional, Tuple

from tf1ps.cluster.description import Cluster
from tf1ps.compat import TIMING

_log = logging.getLogger("tf1ps")
VARIABLE = "CUDA_VISIBLE_DEVICES"
_warned: List[bool] = []  # a process global: not empty after the warning about unseen GPUs

NO_GPU = "-1"  # the value of CUDA_VISIBLE_DEVICES that hides every GPU


class Division(NamedTuple):
  """The GPUs divided among the workers."""

  values: Tuple[str, ...]  # the value of CUDA_VISIBLE_DEVICES for each worker
  note: Optional[str]  # if workers share a GPU: "1 GPU for 2 workers: they share it"


def visible_gpus(environ=None):
  """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: ["0", "1"].

  If the environment (None: `os.environ`) has CUDA_VISIBLE_DEVICES, that list counts, up to its
  first empty or negative entry, as for CUDA itself. Otherwise `nvidia-smi -L` lists the GPUs, if
  that program exists.
  """
  environ = os.environ if environ is None else environ
  named = environ.get(VARIABLE)
  if named is None:
    return _parse_nvidia_smi(ask_nvidia_smi("-L", environ=environ))
  gpus = []
  for entry in (entry.strip() for entry in named.split(",")):
    if not re.match(r"(\d+|GPU-[\w-]+|MIG-[\w/-]+)$", entry):
      break
    gpus.append(entry)
  return gpus


def divide_gpus(gpus, num_workers):
  """Divides GPUs, as from `visible_gpus`, among workers; raises ValueError without a worker.

  Each worker gets a contiguous share. If there is a remainder, each of the first workers gets one
  more GPU. With fewer GPUs than workers, each worker gets a GPU, round robin, and the result has a
  note. Without a GPU, all workers get `NO_GPU`.
  """
  if num_workers < 1:
    raise ValueError("num_workers must be 1 or more, got %r" % (num_workers,))
  if not gpus:
    return Division((NO_GPU,) * num_workers, None)
  if len(gpus) < num_workers:
    note = "%d GPU%s for %d workers: they share %s" % (
      len(gpus), "" if len(gpus) == 1 else "s", num_workers, "it" if len(gpus) == 1 else "them")
    return Division(tuple(gpus[i % len(gpus)] for i in range(num_workers)), note)
  share, more = divmod(len(gpus), num_workers)
  values, start = [], 0
  for worker in range(num_workers):
    end = start + share + (1 if worker < more else 0)
    values.append(",".join(gpus[start:end]))
    start = end
  return Division(tuple(values), None)


def take_share(cluster: Cluster) -> Optional[Division]:
  """Limits this worker to its share of its host's GPUs, if the environment does not name GPUs.

  Call it before TensorFlow looks for a GPU.

  Returns:
    The division among the workers of this host. None: the environment names the GPUs, there is no
    GPU, or no other worker is on this host.
  """
  workers = _workers_here(cluster)
  if VARIABLE in os.environ or cluster.task not in workers or len(workers) < 2:
    return None
  gpus = visible_gpus()
  if not gpus:
    return None
  division = divide_gpus(gpus, len(workers))
  os.environ[VARIABLE] = division.values[workers.index(cluster.task)]
  return division


def with_gpus(config, cluster: Cluster):
  """Returns the `tf.ConfigProto` for the server of the cluster's task.

  A config that has GPU options or a number of GPUs stays unchanged. If nothing has to change, the
  function returns `config` itself, which may be None.
  """
  import tensorflow.compat.v1 as tf  # late, as in session_config.py

  if config is not None and (config.HasField("gpu_options") or "GPU" in config.device_count):
    return config
  workers = _workers_here(cluster)
  is_ps = cluster.job_name == "ps"
  if not is_ps and len(workers) < 2:
    return config
  made = tf.ConfigProto()
  if config is not None:
    made.CopyFrom(config)
  if is_ps:
    made.device_count["GPU"] = 0
    return made
  made.gpu_options.allow_growth = True
  if visible_gpus():
    _log.info("%d workers share this host, so each takes GPU memory as it needs it", len(workers))
  return made


def warn_of_unseen_gpus() -> None:
  """Warns, once, that TensorFlow sees none of the GPUs of this process, and computes on the CPU."""
  import tensorflow.compat.v1 as tf

  if _warned or tf.config.experimental.list_physical_devices("GPU"):
    return
  unseen = visible_gpus()
  if unseen:
    _warned.append(True)
    _log.warning(
      "TensorFlow sees no GPU, but this process may use %s: it computes on the CPU. A library of "
      "CUDA is missing, or TensorFlow is built for CPUs alone: install \"tensorflow[and-cuda]\", "
      "or set CUDA_VISIBLE_DEVICES=-1", ", ".join("GPU " + gpu for gpu in unseen))


def _workers_here(cluster: Cluster):
  return [task for task in cluster.tasks_on_this_host() if task.job != "ps"]


def ask_nvidia_smi(*arguments, environ=None) -> str:
  """Returns the output of nvidia-smi; "" if the program is absent, fails, or does not end."""
  environ = os.environ if environ is None else environ
  program = shutil.which("nvidia-smi", path=environ.get("PATH", os.defpath))
  if program is None:
    return ""
  try:
    return subprocess.run(
      [program, *arguments], env=dict(environ),
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
      timeout=TIMING.nvidia_smi_limit, check=True).stdout.decode("utf-8", "replace")
  except (OSError, subprocess.SubprocessError):
    return ""


def _parse_nvidia_smi(text):
  """Returns the indices in lines such as "GPU 0: Tesla T4 (UUID: GPU-5e0c...)"."""
  return re.findall(r"^GPU (\d+):", text, re.MULTILINE)
