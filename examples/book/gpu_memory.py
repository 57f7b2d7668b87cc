"""Three ways to share a GPU's memory among processes, and a ps that sees no GPU at all.

Example B02. Section: devices.
Mechanism: GPU options.

TensorFlow takes nearly all memory of every GPU that it sees, as soon as a process makes its first
session or server. So a second process on that machine finds none. There are three cures:

1. Show each process its own GPUs: set `CUDA_VISIBLE_DEVICES=1` in its environment before it starts.
   The process counts its GPUs from 0 again. `-1` shows none.
2. Give each process a fraction of each GPU's memory.
3. Let each process take memory as it needs it. It gives no memory back, so two processes that grow
   can still run out.

A server takes 2 and 3 from its own `config=`, not from the sessions that connect to it. A ps needs
no GPU, because it only keeps variables and applies updates to them. If it sees a GPU, a worker on
the same machine finds the memory taken. Without a GPU, the options print the same and have no
effect.

Toolkit: bare TensorFlow. `tf1ps-local` divides the GPUs of the machine among its workers.
`tf1ps-worker` takes `--gpu_memory=0.4` for 2 and `--gpu_memory=grow` for 3. A `tf1ps-ps` hides
GPUs from itself, because `--gpu_memory=none` is its default (docs/cluster.md).

    $ python examples/book/gpu_memory.py
    a fraction: per_process_gpu_memory_fraction: 0.4
    as needed: allow_growth: true
    /job:ps/task:0 sees ... of GPUs

    $ CUDA_VISIBLE_DEVICES=-1 python examples/book/gpu_memory.py
    a fraction: per_process_gpu_memory_fraction: 0.4
    as needed: allow_growth: true
    /job:ps/task:0 sees none of GPUs
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Prints the two options, starts a ps, and prints its GPUs."""
  fraction = tf.ConfigProto()
  fraction.gpu_options.per_process_gpu_memory_fraction = 0.4
  print("a fraction:", str(fraction.gpu_options).strip())

  as_needed = tf.ConfigProto()
  as_needed.gpu_options.allow_growth = True
  print("as needed:", str(as_needed.gpu_options).strip())

  ps = tf.train.Server({"ps": ["localhost:0"]}, job_name="ps", task_index=0, config=as_needed)
  with tf.Session(ps.target) as session:
    gpus = [device.name for device in session.list_devices() if device.device_type == "GPU"]
  print("/job:ps/task:0 sees %s of GPUs" % (", ".join(gpus) or "none"))


if __name__ == "__main__":
  main()
