"""An op that waits for two others although it needs nothing from them.

Example B08. Section: devices.
Mechanism: control dependencies.

x needs neither a nor b. Without more, TensorFlow may run it first, or would not run the others at
all, since only x is asked for. Made inside of `tf.control_dependencies([a, b])`, x waits until both
have ended: so three ops that each take much memory need not have it at the same time.

Look at the last two lines, for the common mistake: the block counts for ops that are *made* in it.
An op that was made before cannot be made to wait by wrapping it in there: the wrapping waits, and
the op itself runs when it likes.

Toolkit: bare TensorFlow.

    $ python examples/book/control_dependencies.py
    x = 3.0
    ran: a, b, x
    x waits for: a, b
    what wraps an op made before waits for: a, b
    that op waits for: nothing
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Runs x, and prints what ran."""
  ran = []

  def noted(value, name):
    """Returns an op that hands on the value, and writes down that it ran."""
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
  for name, tensor in (("x", x), ("what wraps an op made before", wrapped), ("that op", before)):
    print("%s waits for: %s" % (
      name, ", ".join(op.name for op in tensor.op.control_inputs) or "nothing"))


if __name__ == "__main__":
  main()
