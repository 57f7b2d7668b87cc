"""Two ops that are pinned to the CPU, and one that is not: the request, and the device that ran it.

Example B03. Section: devices.
Mechanism: tf.device.

Look at the difference between the device that an op asks for and the device that runs it.
`op.device` is the request, which `tf.device` writes down when you build the graph. `c` is built
outside of the block, so its request is empty and stays empty. TensorFlow chooses the device when a
session first runs the graph. You can read it from the session's partitions of the graph.

The book has three rules. 1. An op that has run on a device stays there. 2. A request decides. 3. An
op without a request runs on the default device: GPU:0 if there is one and the op has a kernel for
it, otherwise the CPU. Today an op that has one user and no inputs also goes to the device of its
user. The clock shows this and rule 1: its user is on CPU:1, and it runs there, unless an earlier
run of the same session had it on CPU:0. Rule 1 holds for ops with state, such as variables, queues
and this clock. A constant moves.

The book also names dynamic placement, which chooses devices by itself. Google used it inside only
(section 3.2.1 of TensorFlow's white paper of 2015 describes its simulation) and did not release it.
The reason in the book is that pinning by hand always seems to use the hardware better. So the rules
above are still all that TensorFlow has.

Toolkit: bare TensorFlow.

    $ python examples/book/simple_placement.py
    a: asks for '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    b: asks for '/device:CPU:0', ran on /job:localhost/replica:0/task:0/device:CPU:0
    c: asks for '', ran on /job:localhost/replica:0/task:0/device:...:0
    c = 4.0
    the clock, first run with its user: on CPU:1
    the clock, first run alone: on CPU:0, and later with its user: on CPU:0
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def places(session, fetch):
  """Runs a fetch; returns its value, and the device of each op by its name."""
  metadata = tf.RunMetadata()
  value = session.run(
    fetch, options=tf.RunOptions(output_partition_graphs=True), run_metadata=metadata)
  return value, {
    node.name: node.device for part in metadata.partition_graphs for node in part.node}


def clock_places(alone_first):
  """Runs a clock without a request and its user on CPU:1; returns the clock's device per run."""
  config = tf.ConfigProto(device_count={"CPU": 2})
  with tf.Graph().as_default(), tf.Session(config=config) as session:
    clock = tf.timestamp(name="clock")
    found = [places(session, clock)] if alone_first else []
    with tf.device("/cpu:1"):
      user = tf.negative(clock)
    found.append(places(session, user))
    return [ran_on["clock"].rpartition("device:")[2] for _, ran_on in found]


def main():
  """Makes the three ops, runs them, and prints both devices of each; then those of the clock."""
  with tf.device("/cpu:0"):
    a = tf.Variable(1.0, name="a")
    b = tf.add(a, 2, name="b")
  c = tf.add(a, b, name="c")

  with tf.Session() as session:
    session.run(a.initializer)
    value, ran_on = places(session, c)
  for name, op in (("a", a), ("b", b), ("c", c)):
    print("%s: asks for %r, ran on %s" % (name, op.device, ran_on[name]))
  print("c =", float(value))
  print("the clock, first run with its user: on", *clock_places(alone_first=False))
  print("the clock, first run alone: on %s, and later with its user: on %s" % tuple(
    clock_places(alone_first=True)))


if __name__ == "__main__":
  main()
