"""One line for each op: where it runs.

Example B05. Section: devices.
Mechanism: log_device_placement.

With `log_device_placement`, TensorFlow prints the device of each op when a session first runs a
graph. It prints nothing at the second run. The lines appear on the standard output of the process
with the *master*. For `tf.Session()` that is this process. For `tf.Session("grpc://...")` it is the
server, and the client's output has no such line. A client can ask for the partitions of the graph
instead (simple_placement.py).

Toolkit: bare TensorFlow.

    $ python examples/book/placement_log.py
    ...
    a: (VariableV2): /job:localhost/replica:0/task:0/device:CPU:0
    a/Assign: (Assign): /job:localhost/replica:0/task:0/device:CPU:0
    a/read: (Identity): /job:localhost/replica:0/task:0/device:CPU:0
    b: (AddV2): /job:localhost/replica:0/task:0/device:CPU:0
    c: (AddV2): /job:localhost/replica:0/task:0/device:...:0
    a/initial_value: (Const): /job:localhost/replica:0/task:0/device:CPU:0
    two: (Const): /job:localhost/replica:0/task:0/device:CPU:0
    4.0
    4.0
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Runs a small graph twice in a session that logs."""
  with tf.device("/cpu:0"):
    a = tf.Variable(1.0, name="a", use_resource=False)
    b = tf.raw_ops.AddV2(x=a, y=tf.constant(2.0, name="two"), name="b")
  c = tf.raw_ops.AddV2(x=a, y=b, name="c")

  with tf.Session(config=tf.ConfigProto(log_device_placement=True)) as session:
    session.run(a.initializer)
    print(session.run(c))
    print(session.run(c))


if __name__ == "__main__":
  main()
