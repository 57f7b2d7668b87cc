"""Variables on the ps by their bytes: GreedyLoadBalancingStrategy beside the usual turns.

Example E14.
Mechanism: a device setter asks its strategy for the ps of each variable. The usual strategy takes
the ps in turn, whatever the sizes. GreedyLoadBalancingStrategy adds up the bytes of each ps and
takes the ps with the fewest. It never moves a variable, so a large variable that comes late upsets
the balance: make the large ones first.
What to look for: in turns, ps 0 gets all the weights and ps 1 gets all the biases. A ps with more
bytes sends and receives more in each step, and the workers wait for the slowest ps.
Toolkit: tf1ps.GreedyLoadBalancingStrategy and tf1ps.byte_size_load_fn, which left TensorFlow with
tf.contrib.training; any setter takes them (docs/drop_in.md). Programs are placed in this way by
default.

    $ python examples/programs/balanced_by_bytes.py
    in turns:
      embedding/weights /job:ps/task:0    64,000 bytes
      embedding/biases  /job:ps/task:1        64 bytes
      hidden/weights    /job:ps/task:0    48,000 bytes
      hidden/biases     /job:ps/task:1     3,000 bytes
      logits/weights    /job:ps/task:0    30,000 bytes
      logits/biases     /job:ps/task:1        40 bytes
    ps              variables    bytes  share
    /job:ps/task:0          3  142,000  97.9%
    /job:ps/task:1          3    3,104   2.1%
    by bytes:
      embedding/weights /job:ps/task:0    64,000 bytes
      embedding/biases  /job:ps/task:1        64 bytes
      hidden/weights    /job:ps/task:1    48,000 bytes
      hidden/biases     /job:ps/task:1     3,000 bytes
      logits/weights    /job:ps/task:1    30,000 bytes
      logits/biases     /job:ps/task:0        40 bytes
    ps              variables   bytes  share
    /job:ps/task:0          2  64,040  44.1%
    /job:ps/task:1          4  81,064  55.9%
"""

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.placement import format_load_table, make_load_table

LAYERS = [("embedding", 1000, 16), ("hidden", 16, 750), ("logits", 750, 10)]


def build():
  """Makes the variables of three layers; a setter around the call places them."""
  for name, inputs, units in LAYERS:
    with tf.variable_scope(name):
      tf.get_variable("weights", [inputs, units])
      tf.get_variable("biases", [units])


def main():
  """Places the same variables in both ways; no server is needed for that."""
  tf.disable_v2_behavior()
  greedy = tf1ps.GreedyLoadBalancingStrategy(2, tf1ps.byte_size_load_fn)
  for name, strategy in (("in turns", None), ("by bytes", greedy)):
    with tf.Graph().as_default():
      with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)):
        build()
      print(name + ":")
      for variable in tf.global_variables():
        print("  %-17s %s  %8s bytes" % (
          variable.op.name, variable.device, format(tf1ps.byte_size_load_fn(variable.op), ",")))
      print(format_load_table(make_load_table()))


if __name__ == "__main__":
  main()
