"""Data that fit into memory, loaded once into a variable that does not belong to the model.

Example B22. Section: data.
Mechanism: a variable that is not trainable and in no collection, set from a placeholder.
A constant would make the data a part of the graph. The graph travels to every task and cannot be
larger than 2 GB. A variable gets the data in one run, as its fed initial value. trainable=False
hides it from optimizers. collections=[] hides it from `global_variables_initializer`, which could
not feed it, and from checkpoints. So you initialise it by hand, and again after a restart of its
task.
In the second form the initial value comes from a Python function, and the initializer is one of the
table initializers. Monitored sessions run these by themselves, also after a restart. Under a device
setter, name the worker's device, or the variable would be on a ps.
Toolkit: bare TensorFlow. (Programs: docs/data.md, "Preloaded data".)

    $ python examples/book/preload_into_variable.py
    tf.global_variables() == []: True
    tf.trainable_variables() == []: True
    10000 rows, the last one [19998.0, 19999.0]
    a batch of rows 3 and 0: [[6.0, 7.0], [0.0, 1.0]]
    80000 bytes of data; more than that in a graph with a constant: True; with the variable: False
    by the table initializers: in no collection: True, the same batch: True
"""

import numpy as np
import tensorflow.compat.v1 as tf

DATA = np.arange(20000, dtype=np.float32).reshape(10000, 2)


def graph_bytes():
  """The size of the default graph as it is sent."""
  return tf.get_default_graph().as_graph_def().ByteSize()


def is_in_no_collection():
  """Whether neither an initializer, nor an optimizer, nor a saver would find a variable."""
  return tf.global_variables() == [] and tf.trainable_variables() == []


def by_hand():
  """Loads the data by a placeholder; returns a batch."""
  initial = tf.placeholder(tf.float32, DATA.shape)
  data = tf.Variable(initial, trainable=False, collections=[], name="data")
  numbers = tf.placeholder(tf.int32, [None])
  batch = tf.gather(data, numbers)
  print("tf.global_variables() == []:", tf.global_variables() == [])
  print("tf.trainable_variables() == []:", tf.trainable_variables() == [])
  with tf.Session() as session:
    session.run(data.initializer, {initial: DATA})
    print("%d rows, the last one %s" % (
      session.run(tf.shape(data)[0]), session.run(data[-1]).tolist()))
    return session.run(batch, {numbers: [3, 0]}).tolist()


def by_table_initializers():
  """Loads the data with the tables; returns a batch."""
  initial = tf.py_func(lambda: DATA, [], tf.float32)
  initial.set_shape(DATA.shape)
  data = tf.Variable(initial, trainable=False, collections=[], name="data")
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, data.initializer)
  batch = tf.gather(data, [3, 0])
  with tf.train.MonitoredSession() as session:
    return session.run(batch).tolist()


def main():
  """Loads the same data three times."""
  tf.disable_v2_behavior()
  with tf.Graph().as_default():
    by_hand_batch = by_hand()
    variable_bytes = graph_bytes()
  print("a batch of rows 3 and 0:", by_hand_batch)
  with tf.Graph().as_default():
    tf.constant(DATA)
    constant_bytes = graph_bytes()
  print("%d bytes of data; more than that in a graph with a constant: %s; with the variable: %s" % (
    DATA.nbytes, constant_bytes > DATA.nbytes, variable_bytes > DATA.nbytes))
  with tf.Graph().as_default():
    batch = by_table_initializers()
    print("by the table initializers: in no collection: %s, the same batch: %s" % (
      is_in_no_collection(), batch == by_hand_batch))


if __name__ == "__main__":
  main()
