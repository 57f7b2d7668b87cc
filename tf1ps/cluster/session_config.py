"""The one config of the server and of every session, and what goes into the environment before.

TensorFlow reads its settings at three times:

  1. at its import, from the environment: `hide_gpus` or `gpu_environment`, `keepalive_environment`;
  2. at the start of the server, which fixes threads and GPU memory of the process, from
     `session_config`;
  3. at each session: timeouts, placement, device filters, from the same config.

A server and its sessions with different configs surprise: what a gRPC session says about threads
and GPU memory has no effect. So there is one config, from one function.
"""

from __future__ import annotations

import os
from typing import Dict, Iterable, Mapping, MutableMapping, Optional, Sequence, Union

_GRPC_OPTIONS = "TF_GRPC_DEFAULT_OPTIONS"
_VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
_NO_GPU = "-1"


def make_session_config(
  gpu_memory_fraction: Optional[float] = None,
  gpu_growth: Optional[bool] = None,
  inter_op_parallelism_threads: Optional[int] = None,
  intra_op_parallelism_threads: Optional[int] = None,
  soft_placement: Optional[bool] = None,
  log_device_placement: Optional[bool] = None,
  operation_timeout_secs: Optional[float] = None,
  device_filters: Optional[Sequence[str]] = None,
  base=None,
):
  """Makes the config of the server and of every session.

  An argument that is None leaves the field as it is in `base`, or as TensorFlow has it.

  Args:
    gpu_memory_fraction: The part of each GPU's memory that the process takes at once, in (0, 1].
    gpu_growth: Whether the process takes GPU memory as it needs it.
    inter_op_parallelism_threads: Threads that run ops side by side, at least 1.
    intra_op_parallelism_threads: Threads inside one op, at least 1.
    soft_placement: Whether an op without a kernel on its device may run elsewhere on its task. None
      without a `base`: True.
    log_device_placement: Whether each op's device is logged.
    operation_timeout_secs: Seconds after which a run fails; also one that would have survived a
      pause of the ps.
    device_filters: The devices that a session sees, see `make_device_filters`.
    base: A `tf.ConfigProto` of the user's; it is copied. None: an empty one.

  Returns:
    A new `tf.ConfigProto`.

  Raises:
    ValueError: If a number is out of its range.
  """
  import tensorflow.compat.v1 as tf  # late: the functions below come before TensorFlow
  config = tf.ConfigProto()
  if base is not None:
    config.CopyFrom(base)
  elif soft_placement is None:
    soft_placement = True
  if gpu_memory_fraction is not None:
    if not 0 < gpu_memory_fraction <= 1:
      raise ValueError(f"gpu_memory_fraction is {gpu_memory_fraction}: it must be above 0 and at "
                       "most 1")
    config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
  if gpu_growth is not None:
    config.gpu_options.allow_growth = gpu_growth
  _set_threads(config, "inter_op", inter_op_parallelism_threads)
  _set_threads(config, "intra_op", intra_op_parallelism_threads)
  if soft_placement is not None:
    config.allow_soft_placement = soft_placement
  if log_device_placement is not None:
    config.log_device_placement = log_device_placement
  if operation_timeout_secs is not None:
    if not operation_timeout_secs > 0:
      raise ValueError(f"operation_timeout_secs is {operation_timeout_secs}: it must be above 0")
    config.operation_timeout_in_ms = _milliseconds(operation_timeout_secs)
  if device_filters is not None:
    del config.device_filters[:]
    config.device_filters.extend(device_filters)
  return config


def _set_threads(config, pool, threads):
  """Sets the size of a pool, "inter_op" or "intra_op", and checks the one that then is there."""
  field = f"{pool}_parallelism_threads"
  if threads is not None:
    if threads < 1:
      raise ValueError(f"{field} is {threads}: it must be at least 1")
    setattr(config, field, threads)
  elif getattr(config, field) < 0:
    # TensorFlow allows it for a session in this process; a server ends the process.
    raise ValueError(f"{field} is {getattr(config, field)} in the given config, which ends the "
                     "process of a server: it must be at least 1, or 0 for TensorFlow's choice")


def keepalive_environment(seconds: float = 10, timeout: float = 5,
                          environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
  """Returns what makes calls to a task that has gone silent fail, for TensorFlow 2.

  Without it a call over a cut cable waits for as long as the system retries to send. TensorFlow
  1.15 does not know the variable.

  Args:
    seconds: Seconds of silence after which a sign of life is asked for.
    timeout: Seconds that the answer may take.
    environ: The environment that TensorFlow will see; what stands there is the user's and stays.
      None: this process's.

  Returns:
    The variable to add to the environment before TensorFlow starts; nothing if it is set already.

  Raises:
    ValueError: If one of the times is not above 0.
  """
  for name, value in (("seconds", seconds), ("timeout", timeout)):
    if not value > 0:
      raise ValueError(f"{name} is {value}: it must be above 0")
  if _GRPC_OPTIONS in (os.environ if environ is None else environ):
    return {}
  # Signs of life only while calls are open: a server takes more of them for an attack.
  return {_GRPC_OPTIONS: f"grpc.keepalive_time_ms={_milliseconds(seconds)},"
                         f"grpc.keepalive_timeout_ms={_milliseconds(timeout)}"}


def _milliseconds(seconds):
  return max(1, round(seconds * 1000))


def gpu_environment(visible: Union[None, str, Iterable[object]]) -> Dict[str, str]:
  """Returns what lets a process see these GPUs and no others, to set before TensorFlow starts.

  Args:
    visible: The GPUs, by number or by name, or as CUDA_VISIBLE_DEVICES has them: [0, 1] or "0,1".
      None, "" and []: no GPU.
  """
  if not isinstance(visible, str):
    visible = ",".join(str(gpu) for gpu in visible or ())
  return {_VISIBLE_GPUS: visible or _NO_GPU}


def hide_gpus(environ: MutableMapping[str, str]) -> None:
  """Hides all GPUs from a ps or an evaluator; to be called before TensorFlow starts.

  Args:
    environ: The environment to change, such as `os.environ`.
  """
  environ.update(gpu_environment(None))
