"""Towers on the devices of one machine: averaged gradients, shared variables, three ways to fail.

Example E6.
Mechanism: the variables are on the CPU. Each device has a tower with its half of the batch. The CPU
computes the mean of the towers' gradients. Here logical CPU devices take the place of GPUs.
What to look for: the mean of the towers' gradients is the gradient of the whole batch, to 1e-6,
whether the program stacks them (as many trainers do) or adds them. There is one w, not two.
Three ways to fail:

1. The scope of the second tower does not reuse the variables. Its tf.get_variable cannot make w
   again, and raises a ValueError.
2. Each tower makes its w by `tf.Variable`, and so has a w of its own. There is no error, but the
   program never averages w_1 with w, and the towers drift apart.
3. `reuse_variables()` marks the scope around everything, not only the scopes of the towers. Later
   code that makes a new variable, such as Adam for its slots, gets the ValueError.

Toolkit: bare TensorFlow, and tf1ps.replication.build_in_graph_synchronous beside it. It reuses
variables in its towers only, and refuses case 2 (docs/replication.md#in-graph-by-hand).

    $ python examples/programs/towers_on_one_machine.py
    stacked: like one big batch True, trainable variables ['w']
    add_n: like one big batch True, trainable variables ['w']
    tf1ps: like one big batch True, trainable variables ['w']
    1. no reuse: ValueError: Variable w already exists...
    2. tf.Variable: trainable variables ['w', 'w_1']
    2. tf1ps: ValueError
    3. a reuse that leaks: ValueError: Variable w/Adam/ does not exist...
"""

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import build_in_graph_synchronous

DEVICES = ["/device:CPU:1", "/device:CPU:2"]
DATA = np.random.RandomState(0).rand(8, 3).astype(np.float32)
# Two ways to a mean: by one more dimension, and by the sum, which needs no copies.
MEANS = {"stacked": lambda gradients: tf.reduce_mean(tf.stack(gradients), 0),
         "add_n": lambda gradients: tf.add_n(gradients) / len(gradients)}


def get_w():
  """One w, if the scope says so."""
  return tf.get_variable("w", [3], initializer=tf.ones_initializer())


def own_w():
  """A w for each caller."""
  return tf.Variable([1.0, 1.0, 1.0], name="w")


def loss_of(rows, make_w=get_w):
  """A loss whose gradient depends on w: mean over the rows of (row . w)²."""
  with tf.device("/device:CPU:0"):
    w = make_w()
  return tf.reduce_mean(tf.square(tf.reduce_sum(rows * w, 1)))


def half(index):
  """A tower's part of the batch."""
  return tf.constant(DATA[4 * index:4 * index + 4])


def towers(optimizer, combine):
  """Two towers by hand; returns the train op and the mean gradient."""
  gradients = []
  for index, device in enumerate(DEVICES):
    with tf.device(device), tf.variable_scope("", reuse=index > 0):
      (gradient, w), = optimizer.compute_gradients(
        loss_of(half(index)), colocate_gradients_with_ops=True)
      gradients.append(gradient)
  with tf.device("/device:CPU:0"):
    mean = combine(gradients)
    return optimizer.apply_gradients([(mean, w)]), mean


def with_tf1ps(optimizer):
  """The same in one call."""
  model = build_in_graph_synchronous(lambda index: loss_of(half(index)), DEVICES, optimizer,
                                     variables_device="/device:CPU:0")
  return model.train_op, model.grads_and_vars[0][0]


def after_a_step(build):
  """Returns w after a step of gradient descent, and the names of the trainable variables."""
  with tf.Graph().as_default():
    train_op, gradient = build(tf.train.GradientDescentOptimizer(0.5))
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as session:
      session.run(tf.global_variables_initializer())
      mean, _ = session.run([gradient, train_op])
    return mean, [variable.op.name for variable in tf.trainable_variables()]


def whole(optimizer):
  """One network on the whole batch."""
  (gradient, w), = optimizer.compute_gradients(loss_of(tf.constant(DATA)))
  return optimizer.apply_gradients([(gradient, w)]), gradient


def error_of(build, *args):
  """Returns the beginning of the ValueError that building a graph raises."""
  with tf.Graph().as_default():
    try:
      build(*args)
    except ValueError as error:
      return "ValueError: " + str(error).split(",")[0]
  return "no error"


def without_reuse():
  """Case 1."""
  return [loss_of(half(0)), loss_of(half(1))]


def leaking():
  """Case 3: marks the scope in which all other variables are made, too."""
  loss = loss_of(half(0))
  tf.get_variable_scope().reuse_variables()
  loss += loss_of(half(1))
  return tf.train.AdamOptimizer(0.1).minimize(loss)


def main():
  """Compares with the whole batch, then fails in three ways."""
  tf.disable_v2_behavior()
  expected, _ = after_a_step(whole)
  for name, build in [("stacked", lambda optimizer: towers(optimizer, MEANS["stacked"])),
                      ("add_n", lambda optimizer: towers(optimizer, MEANS["add_n"])),
                      ("tf1ps", with_tf1ps)]:
    mean, names = after_a_step(build)
    print("%s: like one big batch %s, trainable variables %s" % (
      name, np.abs(mean - expected).max() < 1e-6, names))
  print("1. no reuse:", error_of(without_reuse))
  with tf.Graph().as_default():
    _ = [loss_of(half(index), own_w) for index in range(2)]
    print("2. tf.Variable: trainable variables", [w.op.name for w in tf.trainable_variables()])
  print("2. tf1ps:", error_of(
    build_in_graph_synchronous, lambda index: loss_of(half(index), own_w), DEVICES,
    tf.train.GradientDescentOptimizer(0.5))[:len("ValueError")])
  print("3. a reuse that leaks:", error_of(leaking))


if __name__ == "__main__":
  main()
