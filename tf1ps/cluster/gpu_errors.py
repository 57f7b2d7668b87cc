"""Explains errors of a GPU in a sentence: what happened, on which GPU, and what to do.

TensorFlow's own texts name the CUDA call that failed. The reason is mostly memory that another
process took first. `nvidia-smi` shows which process that is.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional

from tf1ps.cluster import gpus
from tf1ps.compat import error_causes


class _Cause(NamedTuple):
  pattern: str  # matches the line of an error that names the error's cause
  text: str  # %s: the GPU
  remedy: str
  is_memory: bool = False  # whether it helps to know which process has the memory


_SHARE = ("Let processes share it (--gpu_memory=grow, or a part such as 0.4), or make batches "
          "smaller")
# The texts of TensorFlow 1.15 and 2.21, and of CUDA inside of them.
_CAUSES = (
  _Cause(r"OOM when allocating tensor.*\b(GPU_\d+_bfc|device:GPU:\d)|CUDA_ERROR_OUT_OF_MEMORY|"
         r"failed\. Status: out of memory", "%s has no memory left", _SHARE, is_memory=True),
  _Cause(r"Failure to initialize cublas|using StreamExecutor without BLAS support|"
         r"DNN library (initialization failed|is not found)|Failed to get convolution algorithm|"
         r"CU(BLAS|DNN)_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)",
         "%s cannot start cuBLAS or cuDNN, mostly for lack of memory", _SHARE, is_memory=True),
  _Cause(r"no kernel image is available|device kernel image is invalid|"
         r"CUDA_ERROR_(NO_BINARY_FOR_GPU|INVALID_PTX|UNSUPPORTED_PTX_VERSION)",
         "this TensorFlow has no code for %s", "Install a TensorFlow that is built for its compute "
         "capability, or hide it: CUDA_VISIBLE_DEVICES=-1"),
  _Cause(r"driver version is insufficient|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
         "the driver of %s is older than the CUDA of this TensorFlow needs",
         "Update the driver, or install an older TensorFlow"),
  _Cause(r"lib(cu\w+|nccl)\.so\S* ?: cannot open shared object file",
         "a library of CUDA is missing for %s", 'Install "tensorflow[and-cuda]"'),
)
_DEVICE = re.compile(r"device:GPU:(\d+)|GPU_(\d+)_bfc|\bGPU:(\d+)|device ordinal (\d+)")


def explain_gpu_error(error: BaseException) -> str:
  """Returns a sentence about an error of TensorFlow that comes from a GPU; "" for other errors."""
  if not hasattr(error, "error_code"):
    return ""
  for line in error_causes(error):
    for cause in _CAUSES:
      if re.search(cause.pattern, line):
        gpu = _gpu_of(line, error)
        users = _users_of(gpu) if cause.is_memory else []
        return "%s%s. %s" % (
          cause.text % ("GPU " + gpu if gpu is not None else "the GPU"),
          " (%s)" % ", ".join(users) if users else "", cause.remedy)
  return ""


def _gpu_of(line: str, error: BaseException) -> Optional[str]:
  """Returns the GPU as CUDA_VISIBLE_DEVICES or nvidia-smi names it; None: not known."""
  device = getattr(getattr(error, "op", None), "device", "")
  found = _DEVICE.search(line) or _DEVICE.search(device)
  if found is None:
    return None
  index = int(next(filter(None, found.groups())))
  named = gpus.visible_gpus() if gpus.VARIABLE in os.environ else []
  return named[index] if index < len(named) else str(index)


def _users_of(gpu: Optional[str]) -> List[str]:
  """Returns the other processes with memory of a GPU: ["process 4711 (python3) has 70112 MiB"]."""
  text = gpus.ask_nvidia_smi(
    *([] if gpu is None else ["-i", gpu]), "--query-compute-apps=pid,name,used_memory",
    "--format=csv,noheader,nounits")
  rows = [[field.strip() for field in line.split(",")] for line in text.splitlines()]
  return ["process %s (%s) has %s MiB" % (row[0], os.path.basename(row[1]), row[2])
          for row in rows if len(row) == 3 and row[0] != str(os.getpid())]
