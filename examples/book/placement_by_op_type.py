"""A device function that puts variables on the CPU and everything else on the GPU.

Example B04. Section: devices.
Mechanism: a device function.

`tf.device` also takes a function. TensorFlow calls it with each new op, and it returns the op's
device. The function in the book asks for `op.type == "Variable"`. No op has that type any more: a
variable is a `VariableV2`, or a `VarHandleOp` if it is a resource variable. So the book's function
returns "/gpu:0" for every op, and variables land on the GPU without an error.

Look at column a. (b is a constant, and c is the sum. The session has soft placement, so that the
example also runs without a GPU.)

Toolkit: bare TensorFlow. `tf1ps.replica_device_setter` knows both kinds of variable
(docs/drop_in.md). The argument `use_resource` of a script decides the kind.

    $ python examples/book/placement_by_op_type.py
    of the book, ref variable:       a VariableV2  /gpu:0, b Const /gpu:0, c AddV2 /gpu:0: 7.0
    of the book, resource variable:  a VarHandleOp /gpu:0, b Const /gpu:0, c AddV2 /gpu:0: 7.0
    by all types, ref variable:      a VariableV2  /cpu:0, b Const /gpu:0, c AddV2 /gpu:0: 7.0
    by all types, resource variable: a VarHandleOp /cpu:0, b Const /gpu:0, c AddV2 /gpu:0: 7.0
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def of_the_book(op):
  """Matches nothing."""
  return "/cpu:0" if op.type == "Variable" else "/gpu:0"  # tf1ps-doctor: ignore[op-type-variable]


def by_all_types(op):
  """Puts variables on the CPU, of whatever kind they are."""
  return "/cpu:0" if op.type in ("Variable", "VariableV2", "VarHandleOp") else "/gpu:0"


def main():
  """Makes the same graph with each function and each kind of variable."""
  for function in (of_the_book, by_all_types):
    for kind in ("ref", "resource"):
      with tf.Graph().as_default():
        with tf.device(function):
          a = tf.Variable(3.0, use_resource=kind == "resource", name="a")
          b = tf.constant(4.0, name="b")
          c = a + b
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
          session.run(a.initializer)
          value = session.run(c)
      print("%-32s a %-11s %s, b %s %s, c %s %s: %s" % (
        "%s, %s variable:" % (function.__name__.replace("_", " "), kind),
        a.op.type, a.op.device, b.op.type, b.op.device, c.op.type, c.op.device, value))


if __name__ == "__main__":
  main()
