"""How many ops run at the same time: the thread pools of a process.

Example B07. Section: devices.
Mechanism: inter-op and intra-op threads.

Ops that do not wait for each other run at the same time, each in a thread of the *inter-op* pool.
The parallel parts of one op's kernel run in threads of the *intra-op* pool.

The first measurement needs no stopwatch. Two ops wait for each other, for half a second at most.
They meet only if both run at the same time. Look at the second line: its session asks for two
threads, and still the ops do not meet. The first session of a process makes the inter-op pool for
all later sessions and servers. TensorFlow ignores the wishes of later ones without a message. With
`use_per_session_threads` a session has a pool of its own.

A process also makes its intra-op pool only once, and no session has one of its own. So the second
measurement, a product of matrices, needs a process for each size. The gain from a second thread
depends on the other work of the machine.

Toolkit: bare TensorFlow.

    $ python examples/book/thread_pools.py
    inter_op_parallelism_threads: 1
    the two ops met: False, after ... s
    inter_op_parallelism_threads: 2
    the two ops met: False, after ... s
    inter_op_parallelism_threads: 2, use_per_session_threads: true
    the two ops met: True, after 0... s

    $ python examples/book/thread_pools.py --intra_op=1
    intra_op_parallelism_threads: 1
    a product of two 1000x1000 matrices takes ... ms

    $ python examples/book/thread_pools.py --intra_op=2
    intra_op_parallelism_threads: 2
    a product of two 1000x1000 matrices takes ... ms
"""
import threading
import time

import tensorflow.compat.v1 as tf
from absl import app, flags

flags.DEFINE_integer("intra_op", None, "Threads of one op; none: the pool for several ops.")

tf.disable_v2_behavior()


def show(config):
  """Prints the fields of a configuration in one line."""
  print(", ".join(str(config).split("\n")[:-1]))


def meet(**options):
  """Runs two ops that wait for each other in a session with these options."""
  both = threading.Barrier(2)

  def wait():
    try:
      both.wait(0.5)  # seconds
      return True
    except threading.BrokenBarrierError:
      return False

  config = tf.ConfigProto(**options)
  show(config)
  with tf.Graph().as_default(), tf.Session(config=config) as session:
    ops = [tf.py_func(wait, [], tf.bool) for _ in range(2)]
    start = time.time()
    met = all(session.run(ops))
    print("the two ops met: %s, after %.1f s" % (met, time.time() - start))


def multiply(threads):
  """Times a product of matrices with so many threads for one op."""
  config = tf.ConfigProto(intra_op_parallelism_threads=threads)
  show(config)
  with tf.Session(config=config) as session:
    matrix = tf.Variable(tf.random_normal([1000, 1000]))
    product = tf.matmul(matrix, matrix)
    session.run(matrix.initializer)
    times = []
    for _ in range(10):
      start = time.time()
      session.run(product.op)  # the op, not its value: nothing is fetched
      times.append(time.time() - start)
  print("a product of two 1000x1000 matrices takes %.1f ms" % (1000 * sorted(times)[5]))


def main(_):
  """Measures the intra-op pool if the flag is there, else the inter-op pool."""
  if flags.FLAGS.intra_op:
    multiply(flags.FLAGS.intra_op)
  else:
    meet(inter_op_parallelism_threads=1)
    meet(inter_op_parallelism_threads=2)
    meet(inter_op_parallelism_threads=2, use_per_session_threads=True)


if __name__ == "__main__":
  app.run(main)
