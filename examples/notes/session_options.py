"""Session options: the text of a ConfigProto, and the sum of several devices' products.

Example N6.
Mechanism: options are a protocol buffer. The text of it leaves out each option that has its default
value. OptimizerOptions.L1 without inlining of functions, which Tensor2Tensor asks for, is such a
default: the text is empty, and the option changes nothing. L0 turns the optimizations off, and its
text shows it: opt_level is -1. A memory fraction of 0.95 is kept on a machine without GPUs, too,
and does nothing there. The *first* session or server of a process fixes its threads.
Several devices: each computes a product, and the CPU computes the sum of them. Logical CPUs take
the place of GPUs here. '/device:GPU:d2' is no name of a device: the index is a number.
Toolkit: bare TensorFlow. (tf1ps sets options by flags: `tf1ps-worker --help`.)

    $ python examples/notes/session_options.py
    one thread:
      intra_op_parallelism_threads: 1
      inter_op_parallelism_threads: 1
      allow_soft_placement: true
      graph_options { optimizer_options { } }
    with a GPU's memory:
      gpu_options { per_process_gpu_memory_fraction: 0.95 }
      allow_soft_placement: true
      graph_options { optimizer_options { } }
    L1 says: nothing, L0 says: opt_level: L0
    the sum of the products: [[66.0, 84.0], [147.0, 192.0]]
    on: ['/device:CPU:1', '/device:CPU:2', '/device:CPU:3'], add_n on /device:CPU:0
    a device of that name: ValueError
"""

import re

import tensorflow.compat.v1 as tf


def session_config(single_thread):
  """Returns options for one thread, or for a part of a GPU's memory."""
  options = tf.GraphOptions(optimizer_options=tf.OptimizerOptions(
    opt_level=tf.OptimizerOptions.L1, do_function_inlining=False))
  if single_thread:
    return tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1,
                          allow_soft_placement=True, graph_options=options)
  memory = tf.GPUOptions(per_process_gpu_memory_fraction=0.95)
  return tf.ConfigProto(allow_soft_placement=True, graph_options=options, gpu_options=memory)


def show(title, config):
  """Prints a configuration, each message on a line."""
  print(title + ":")
  text, depth, line = str(config).split("\n"), 0, []
  for part in [re.sub(r"\s+", " ", part).strip() for part in text if part.strip()]:
    line.append(part)
    depth += part.endswith("{") - (part == "}")
    if not depth:
      print("  " + " ".join(line))
      line = []


def main():
  """Prints what options say, and sums over devices."""
  tf.disable_v2_behavior()
  show("one thread", session_config(True))
  show("with a GPU's memory", session_config(False))
  level = tf.OptimizerOptions
  print("L1 says: %s, L0 says: %s" % tuple(
    str(level(opt_level=value)).strip() or "nothing" for value in (level.L1, level.L0)))

  devices = ["/device:CPU:%d" % index for index in (1, 2, 3)]
  products = []
  for device in devices:
    with tf.device(device):
      a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3])
      b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2])
      products.append(tf.matmul(a, b))
  with tf.device("/device:CPU:0"):
    total = tf.add_n(products)
  with tf.Session(config=tf.ConfigProto(device_count={"CPU": 4})) as session:
    print("the sum of the products:", session.run(total).tolist())
  print("on: %s, add_n on %s" % ([product.device for product in products], total.device))
  try:
    with tf.Graph().as_default(), tf.device("/device:GPU:d2"):
      tf.constant(1.0)
  except ValueError:
    print("a device of that name: ValueError")


if __name__ == "__main__":
  main()
