"""An integer variable that is to be on a GPU cannot be: three cures, and one that is forgotten.

Example B06. Section: devices.
Mechanism: kernels and soft placement.

An op runs on a device only where there is a kernel for that type of op, device and data. A (ref)
variable of 32-bit integers has none on GPUs. The cures: have it on the CPU, make it a float, or let
TensorFlow move what cannot be where it is wished.

A session that was made before, without `config`, keeps the error: soft placement belongs to the
session that was made with it. And it is about devices alone: a job or a task that does not exist
remains an error.

Where there is no GPU, the same error says that there is none; so the float fails there, too.

Toolkit: bare TensorFlow. Programs of tf1ps always run with soft placement (docs/cluster.md).

    $ python examples/book/missing_kernel.py
    integer on /gpu:0: InvalidArgumentError
    integer on /cpu:0: 3
    float on /gpu:0: ...
    integer on /gpu:0, config not handed over: InvalidArgumentError
    integer on /gpu:0, soft placement: 3
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def value_of(initial, device, config=None):
  """Returns what a variable on that device is in a session, or the name of the error."""
  with tf.Graph().as_default():
    with tf.device(device):
      variable = tf.Variable(initial, use_resource=False)
    with tf.Session(config=config) as session:
      try:
        session.run(variable.initializer)
        return session.run(variable)
      except tf.errors.InvalidArgumentError as error:
        return type(error).__name__


def main():
  """Tries each form."""
  print("integer on /gpu:0:", value_of(3, "/gpu:0"))
  print("integer on /cpu:0:", value_of(3, "/cpu:0"))
  print("float on /gpu:0:", value_of(3.0, "/gpu:0"))

  config = tf.ConfigProto()
  config.allow_soft_placement = True
  print("integer on /gpu:0, config not handed over:", value_of(3, "/gpu:0"))
  print("integer on /gpu:0, soft placement:", value_of(3, "/gpu:0", config))


if __name__ == "__main__":
  main()
