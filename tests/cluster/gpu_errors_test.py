from __future__ import annotations

import os

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import gpu_errors

SHARE = (". Let processes share it (--gpu_memory=grow, or a part such as 0.4), or make batches "
         "smaller")
NO_MEMORY = "%s cannot start cuBLAS or cuDNN, mostly for lack of memory"
# A program that prints the processes with memory of a GPU; it gets the GPU by -i.
NVIDIA_SMI = """#!/bin/sh
test "$1 $3" = "-i --query-compute-apps=pid,name,used_memory" || exit 9
echo "4711, /usr/bin/python3, 7011$2"
echo "%d, python3, 5"
"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
  program = tmp_path / "nvidia-smi"
  program.write_text(NVIDIA_SMI % os.getpid())
  program.chmod(0o755)
  monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))


@pytest.fixture(autouse=True)
def nobody_divides(monkeypatch):
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def op_error(text, kind=tf.errors.InternalError, op=None):
  return kind(None, op, text)


@pytest.mark.parametrize("kind, text, said", [
  # As a job of two workers on an H200 had it.
  (tf.errors.InternalError, "2 root error(s) found.\n  (0) INTERNAL: Failure to initialize cublas "
   "may be due to OOM (cublas needs some free memory when you initialize it)\n\t [[{{node x}}]]\n",
   NO_MEMORY % "the GPU" + SHARE),
  (tf.errors.ResourceExhaustedError, "OOM when allocating tensor with shape[64,256] and type float "
   "on /job:worker/replica:0/task:1/device:GPU:0 by allocator GPU_0_bfc",
   "GPU 0 has no memory left" + SHARE),
  (tf.errors.InternalError, "CUDA runtime implicit initialization on GPU:1 failed. Status: out of "
   "memory", "GPU 1 has no memory left" + SHARE),
  (tf.errors.InternalError, "failed initializing StreamExecutor for device ordinal 2: INTERNAL: "
   "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
   "GPU 2 has no memory left" + SHARE),
  (tf.errors.InternalError, "Attempting to perform BLAS operation using StreamExecutor without "
   "BLAS support", NO_MEMORY % "the GPU" + SHARE),
  (tf.errors.FailedPreconditionError, "DNN library initialization failed. Look at the errors above "
   "for more details.", NO_MEMORY % "the GPU" + SHARE),
  (tf.errors.UnknownError, "Failed to get convolution algorithm. This is probably because cuDNN "
   "failed to initialize, so try looking to see if a warning log message was printed above.",
   NO_MEMORY % "the GPU" + SHARE),
  (tf.errors.InternalError, "CUDA runtime implicit initialization on GPU:0 failed. Status: device "
   "kernel image is invalid", "this TensorFlow has no code for GPU 0. Install a TensorFlow that is "
   "built for its compute capability, or hide it: CUDA_VISIBLE_DEVICES=-1"),
  (tf.errors.InternalError, "cudaGetDevice() failed. Status: CUDA driver version is insufficient "
   "for CUDA runtime version", "the driver of the GPU is older than the CUDA of this TensorFlow "
   "needs. Update the driver, or install an older TensorFlow"),
  (tf.errors.NotFoundError, "libcudnn.so.9: cannot open shared object file: No such file or "
   "directory", 'a library of CUDA is missing for the GPU. Install "tensorflow[and-cuda]"'),
  # Of the host's memory, and without a GPU.
  (tf.errors.ResourceExhaustedError, "OOM when allocating tensor with shape[9] and type float on "
   "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu", ""),
  (tf.errors.InternalError, "the port is closed", "")])
def test_what_happened_on_which_gpu_and_what_to_do(kind, text, said, monkeypatch):
  monkeypatch.setenv("PATH", "")
  assert gpu_errors.explain_gpu_error(op_error(text, kind)) == said


def test_an_error_that_is_not_of_tensorflow():
  assert gpu_errors.explain_gpu_error(RuntimeError("CUDA_ERROR_OUT_OF_MEMORY")) == ""


def test_the_gpu_is_that_of_the_environment_or_of_the_operation(nvidia_smi, monkeypatch):
  with tf.Graph().as_default(), tf.device("/job:worker/task:0/device:GPU:1"):
    op = tf.no_op()
  error = op_error("Failure to initialize cublas", op=op)
  assert gpu_errors.explain_gpu_error(error) == (
    NO_MEMORY % "GPU 1" + " (process 4711 (python3) has 70111 MiB)" + SHARE)
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
  assert gpu_errors.explain_gpu_error(error).startswith(
    NO_MEMORY % "GPU 5" + " (process 4711 (python3) has 70115 MiB)")
