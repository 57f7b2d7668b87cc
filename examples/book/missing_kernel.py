"""A GPU cannot hold an integer variable: three cures, and one that is easy to forget.

Example B06. Section: devices.
Mechanism: kernels and soft placement.

A device runs an op only if there is a kernel for the op's type, the device and the type of the
data. GPUs have no kernel for a ref variable of 32-bit integers. There are three cures: pin the
variable to the CPU, make it a float, or let TensorFlow choose another device (soft placement).

Soft placement belongs to the session whose `config` asks for it. The book makes the config and
forgets to give it to the session, and then the error remains. Soft placement changes only the
device: a job or a task that does not exist remains an error.

Without a GPU, the float fails with the same error, because there is no such device.

Toolkit: bare TensorFlow. Programs of tf1ps always run with soft placement (docs/cluster.md).

    $ python examples/book/missing_kernel.py
    integer on /gpu:0: InvalidArgumentError
    integer on /cpu:0: 3
    float on /gpu:0: ...
    integer on /gpu:0, config not given to the session: InvalidArgumentError
    integer on /gpu:0, soft placement: 3
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def value_of(initial, device, config=None):
  """Returns the value of a variable on that device, or the name of the error."""
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
  print("integer on /gpu:0, config not given to the session:", value_of(3, "/gpu:0"))
  print("integer on /gpu:0, soft placement:", value_of(3, "/gpu:0", config))


if __name__ == "__main__":
  main()
