"""The GPUs of this machine, divided among the workers.

This happens before TensorFlow looks for a GPU, and without TensorFlow, because a process that has
once seen the GPUs takes memory on each of them. Each worker gets a value of `CUDA_VISIBLE_DEVICES`,
which its process sets before its first session or server. A ps and an evaluator get `NO_GPU`.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import NamedTuple, Optional, Tuple

from tf1ps.compat import TIMING

NO_GPU = "-1"  # the value of CUDA_VISIBLE_DEVICES that hides every GPU


class Division(NamedTuple):
  """The GPUs divided among the workers."""

  values: Tuple[str, ...]  # of CUDA_VISIBLE_DEVICES, for each worker
  note: Optional[str]  # a line for the user where workers share a GPU


def visible_gpus(environ=None):
  """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them: ["0", "1"].

  If the environment (None: `os.environ`) has CUDA_VISIBLE_DEVICES, that list counts, up to its
  first empty or negative entry, as for CUDA itself. Otherwise `nvidia-smi -L` lists them, if it
  exists.
  """
  environ = os.environ if environ is None else environ
  named = environ.get("CUDA_VISIBLE_DEVICES")
  if named is None:
    return _parse_nvidia_smi(_run_nvidia_smi(environ))
  gpus = []
  for entry in (entry.strip() for entry in named.split(",")):
    if not re.match(r"(\d+|GPU-[\w-]+|MIG-[\w/-]+)$", entry):
      break
    gpus.append(entry)
  return gpus


def divide_gpus(gpus, num_workers):
  """Divides GPUs, as of `visible_gpus`, among workers; raises ValueError without a worker.

  Each worker has a contiguous share; of a remainder, the first workers have one GPU more each.
  With fewer GPUs than workers, each worker gets a GPU, round robin, with a note. Without a GPU, all
  get `NO_GPU`.
  """
  if num_workers < 1:
    raise ValueError("num_workers must be 1 or more, got %r" % (num_workers,))
  if not gpus:
    return Division((NO_GPU,) * num_workers, None)
  if len(gpus) < num_workers:
    note = "%d GPU%s for %d workers: they share (give --gpu_memory=grow, or a part such as 0.4)" % (
      len(gpus), "" if len(gpus) == 1 else "s", num_workers)
    return Division(tuple(gpus[i % len(gpus)] for i in range(num_workers)), note)
  share, more = divmod(len(gpus), num_workers)
  values, start = [], 0
  for worker in range(num_workers):
    end = start + share + (1 if worker < more else 0)
    values.append(",".join(gpus[start:end]))
    start = end
  return Division(tuple(values), None)


def _run_nvidia_smi(environ):
  """Returns what `nvidia-smi -L` prints; "" where it is absent, fails, or does not end."""
  try:
    return subprocess.run(
      ["nvidia-smi", "-L"], env=dict(environ), stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=TIMING.nvidia_smi_limit,
      check=True).stdout.decode("utf-8", "replace")
  except (OSError, subprocess.SubprocessError):
    return ""


def _parse_nvidia_smi(text):
  """Returns the indices in lines such as "GPU 0: Tesla T4 (UUID: GPU-5e0c...)"."""
  return re.findall(r"^GPU (\d+):", text, re.MULTILINE)
