"""A small model and a lot of data: one process is far ahead of 1, 2 and 4 workers with a ps.

Example N8.
Mechanism: between-graph replication of a softmax with 650 parameters, asynchronous. Examples are
drawn when they are needed, so they never run out, and reading them costs the same everywhere. Each
process computes in one thread, as if a core were a device.
A worker computes for c ms per step, and fetches values and sends gradients for s ms more. So n
workers make at most n c / (c + s) times the steps of one process. The last column is c / (c + s).
With 100 examples per step it is a few per cent. Many cores or machines would only catch up with one
process, if the ps could serve them. Their gradients would be older with each further worker.
What to look for: with 2000 examples per step, there are as many parameters and 20 times as much to
compute. So each worker contributes more. But a step of 2000 examples is one update, not 20. The
computation for each value that travels decides, not the amount of data.
Google has reported (2016, GPUs) speed-ups of 6 with 8 devices, 32 with 50 and 300 with 500. These
are 75, 64 and 60 % per worker: s is a third to two thirds of c. Such networks use a weight at many
places of an image or in each word of a sentence, or a step touches few of very many weights.
The chapter adds where the network was full on that hardware: dense models became much slower beyond
a few dozen GPUs, sparse ones beyond a few hundred. In the table the dense model is full at once.
The tasks are in measured_tasks.py.
Toolkit: bare TensorFlow. docs/benchmarks.md#scaling says what a step costs the ps. If a small
model needs a ps all the same, docs/transfer.md#several-steps-per-run has several steps in one run.

    $ python examples/notes/when_not_to_parallelise.py
                                  steps/s  examples/s  speed-up  a worker
    batch   100, one process  ...      1.00      100%
    batch   100, 1 with a ps  ...%
    batch   100, 2 with a ps  ...%
    batch   100, 4 with a ps  ...%
    batch  2000, one process  ...      1.00      100%
    batch  2000, 1 with a ps  ...%
    batch  2000, 2 with a ps  ...%
    batch  2000, 4 with a ps  ...%
    reported: 8, translation                             6.00       75%
    reported: 50, Inception                             32.00       64%
    reported: 500, RankBrain                           300.00       60%
    batch 100: one process is ahead of 4 workers: True

Measured on 2 cores (TensorFlow 2.21, medians of --rounds=9). The 4 workers and the ps share the
cores:

                                  steps/s  examples/s  speed-up  a worker
    batch   100, one process         9114      911399      1.00      100%
    batch   100, 1 with a ps          712       71219      0.08        8%
    batch   100, 2 with a ps         1002      100169      0.11        5%
    batch   100, 4 with a ps         1205      120457      0.13        3%
    batch  2000, one process         1258     2515531      1.00      100%
    batch  2000, 1 with a ps          501     1001320      0.40       40%
    batch  2000, 2 with a ps          678     1355324      0.54       27%
    batch  2000, 4 with a ps          761     1521352      0.60       15%
"""

import contextlib

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from measured_tasks import BATCHES, ONE_THREAD, answer, build_steps, start_tasks, steps_a_second

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and four workers; none: free ones.")
flags.DEFINE_integer("rounds", 5, "How many measurements, of which the median counts.")
flags.DEFINE_float("seconds", 0.3, "Of a measurement.")

WORKERS = [1, 2, 4]
# Network, GPUs, speed-up, as Google has reported them.
REPORTED = [("translation", 8, 6), ("Inception", 50, 32), ("RankBrain", 500, 300)]


def share(speedup, count):
  """The last two columns: the speed-up, and what each worker contributes to it."""
  return "%9.2f %8.0f%%" % (speedup, 100 * speedup / count)


def main(_):
  """Measures in turns, so that all meet the machine in the same state, and prints a table."""
  tf.disable_v2_behavior()
  found = {(size, count): [] for size in BATCHES for count in [0] + WORKERS}
  with contextlib.ExitStack() as stack:
    # Before TensorFlow has begun here.
    workers = start_tasks(flags.FLAGS.hosts or find_free_addresses(5), stack)
    train_ops = build_steps()
    session = stack.enter_context(tf.Session(config=ONE_THREAD))
    session.run(tf.global_variables_initializer())

    def measure(size, count):
      if not count:
        return steps_a_second(session, train_ops[size], flags.FLAGS.seconds)
      for worker in workers[:count]:
        worker.send((size, flags.FLAGS.seconds))
      return sum([answer(worker, flags.FLAGS.seconds + 60.0) for worker in workers[:count]])

    for _ in range(flags.FLAGS.rounds):
      for case, rates in found.items():
        rates.append(measure(*case))
  rates = {case: np.median(several) for case, several in found.items()}
  print("%28s  steps/s  examples/s  speed-up  a worker" % "")
  for (size, count), rate in rates.items():
    what = "%d with a ps" % count if count else "one process"
    print("batch %5d, %-15s %8.0f %11.0f %s" % (
      size, what, rate, rate * size, share(rate / rates[size, 0], max(count, 1))))
  for name, count, speedup in REPORTED:
    print("%-47s %s" % ("reported: %d, %s" % (count, name), share(speedup, count)))
  print("batch 100: one process is ahead of 4 workers:", bool(rates[100, 0] > rates[100, 4]))


if __name__ == "__main__":
  app.run(main)
