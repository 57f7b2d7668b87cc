"""Variables on the ps by their bytes: GreedyLoadBalancingStrategy beside the usual turns.

Example E14.
Mechanism: a device setter asks its strategy for the ps of each variable. The usual strategy takes
the ps in turn, whatever the sizes. GreedyLoadBalancingStrategy adds up the bytes of each ps and
takes the ps with the fewest. It never moves a variable, so a large variable that comes late upsets
the balance: make the large ones first.
What to look for: in turns, ps 0 gets all the weights and ps 1 gets all the biases. A ps with more
bytes sends and receives more in each step, and the workers wait for the slowest ps.
Toolkit: tf1ps.GreedyLoadBalancingStrategy and tf1ps.byte_size_load_fn, which left TensorFlow with
tf.contrib.training. Any setter takes them (docs/drop_in.md). Programs for `tf1ps-worker` get this
placement by default.

    $ python examples/programs/balanced_by_bytes.py
    variable             bytes  in turns        by bytes
    embedding/weights   64,000  /job:ps/task:0  /job:ps/task:0
    embedding/biases        64  /job:ps/task:1  /job:ps/task:1
    hidden/weights      48,000  /job:ps/task:0  /job:ps/task:1
    hidden/biases        3,000  /job:ps/task:1  /job:ps/task:1
    logits/weights      30,000  /job:ps/task:0  /job:ps/task:1
    logits/biases           40  /job:ps/task:1  /job:ps/task:0
    in turns: 142,000 bytes on /job:ps/task:0, 3,104 bytes on /job:ps/task:1
    by bytes: 64,040 bytes on /job:ps/task:0, 81,064 bytes on /job:ps/task:1
"""

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.placement import make_load_table

LAYERS = [("embedding", 1000, 16), ("hidden", 16, 750), ("logits", 750, 10)]


def build():
  """Makes the variables of three layers; a setter around the call places them."""
  for name, inputs, units in LAYERS:
    with tf.variable_scope(name):
      tf.get_variable("weights", [inputs, units])
      tf.get_variable("biases", [units])


def place(strategy):
  """Returns the variables and the load of each ps."""
  with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, ps_strategy=strategy)):
      build()
    return tf.global_variables(), make_load_table()


def main():
  """Places the same variables in both ways; no server is needed for that."""
  tf.disable_v2_behavior()
  in_turns, loads_in_turns = place(None)
  by_bytes, loads_by_bytes = place(
    tf1ps.GreedyLoadBalancingStrategy(2, tf1ps.byte_size_load_fn))
  print("variable             bytes  in turns        by bytes")
  for one, other in zip(in_turns, by_bytes):
    size = format(tf1ps.byte_size_load_fn(one.op), ",")
    print("%-17s  %7s  %s  %s" % (one.op.name, size, one.device, other.device))
  for name, loads in (("in turns", loads_in_turns), ("by bytes", loads_by_bytes)):
    print("%s: %s" % (name, ", ".join(
      "%s bytes on %s" % (format(load.bytes, ","), load.task) for load in loads)))


if __name__ == "__main__":
  main()
