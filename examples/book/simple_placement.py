"""Two ops that are pinned to the CPU, and one that is not: the request, and the device that ran it.

Example B03. Section: devices.
Mechanism: tf.device.

Look at the difference between the device that an op asks for and the device that runs it.
`op.device` is the request, which `tf.device` writes down when you build the graph. `c` is built
outside of the block, so its request is empty and stays empty. TensorFlow chooses the device when a
session first runs the graph. You can read it from the session's partitions of the graph.

An op without a request runs on GPU:0 if there is one and the op has a kernel for it. Otherwise it
runs on the CPU.

Toolkit: bare TensorFlow.

    $ python examples/book/simple_placement.py
    a: asks for '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    b: asks for '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    c: asks for '', ran on /job:localhost/replica:0/task:0/device:...:0
    c = 4.0
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Makes the three ops, runs them, and prints both devices of each."""
  with tf.device("/cpu:0"):
    a = tf.Variable(1.0, name="a")
    b = tf.add(a, 2, name="b")
  c = tf.add(a, b, name="c")

  with tf.Session() as session:
    session.run(a.initializer)
    metadata = tf.RunMetadata()
    value = session.run(
      c, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata)

  places = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
  for name, op in (("a", a), ("b", b), ("c", c)):
    print("%s: asks for %r, ran on %s" % (name, op.device, places[name]))
  print("c =", float(value))


if __name__ == "__main__":
  main()
