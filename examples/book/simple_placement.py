"""Two ops that are pinned to the CPU, and one that is not pinned: what is said, and where it ran.

Example B03. Section: devices.
Mechanism: tf.device.

Look at the difference between an op's *wish* and its *place*. `op.device` is the wish that
`tf.device` wrote down while the graph was made: `c`, made outside of the block, has none, and
keeps having none. The place is found when a session first runs the graph, and can be read from the
partitions that the session made.

Where does an op without a wish run? On GPU:0 where there is one and the op has a kernel for it, on
the CPU where not.

Toolkit: bare TensorFlow.

    $ python examples/book/simple_placement.py
    a: wished '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    b: wished '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    c: wished '', ran on /job:localhost/replica:0/task:0/device:...:0
    c = 4.0
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Makes the three ops, runs them, and tells of each."""
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
    print("%s: wished %r, ran on %s" % (name, op.device, places[name]))
  print("c =", float(value))


if __name__ == "__main__":
  main()
