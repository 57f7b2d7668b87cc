"""An op that waits for two others although it needs nothing from them.

Example B08. Section: devices.
Mechanism: control dependencies.

x needs neither a nor b. So TensorFlow may run x first. And if you ask only for x, TensorFlow does
not run a and b at all. An x that is built inside `tf.control_dependencies([a, b])` waits until both
have ended. In this way three ops that need much memory do not need it at the same time.

Look at the last two lines, which show a common mistake. The block affects only ops that are *built*
in it. If you wrap an older op in the block, the wrapper waits, and the old op still runs at any
time.

Toolkit: bare TensorFlow.

    $ python examples/book/control_dependencies.py
    x = 3.0
    ran: a, b, x
    x waits for: a, b
    the wrapper of an older op waits for: a, b
    the older op waits for: nothing
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Runs x, and prints what ran."""
  ran = []

  def noted(value, name):
    """Returns an op that passes the value on, and records that it ran."""
    def note(array):
      ran.append(name)
      return array
    return tf.py_func(note, [value], tf.float32, name=name)

  three = tf.constant(3.0)
  a = noted(tf.constant(1.0), "a")
  b = noted(a + 2.0, "b")
  before = noted(three, "before")  # made, but not run below
  with tf.control_dependencies([a, b]):
    x = noted(three, "x")
    wrapped = tf.identity(before)

  with tf.Session() as session:
    print("x =", float(session.run(x)))
  print("ran:", ", ".join(ran))
  for name, tensor in (("x", x), ("the wrapper of an older op", wrapped), ("the older op", before)):
    print("%s waits for: %s" % (
      name, ", ".join(op.name for op in tensor.op.control_inputs) or "nothing"))


if __name__ == "__main__":
  main()
