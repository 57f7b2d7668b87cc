"""Files of unequal length, workers of unequal speed: an epoch that ends, with each line used once.

Example E16.
Mechanism: late binding of the shares of the data. A share is a range of lines of a file. The
coordinator schedules a step for each share of the epoch, and a worker takes the next share when it
is free. So a slow worker takes fewer shares, and no worker has a dataset that ends before that of
the others: `join` is the end of the epoch, without `repeat()` and without an OutOfRangeError.
What to look for: each of the 512 lines counts once in each epoch, and the slowest worker takes the
fewest shares. (If a worker is lost, its share goes to another one. An update of that share that was
already made is then made twice; the count stays right.)
Toolkit: tf1ps.ClusterCoordinator (docs/coordinator.md) on tf1ps.local_cluster.

    $ python examples/uneven_workers.py
    files of 7, 300, 45 and 160 lines; a share takes 0, 0.02 or 0.2 s more on worker 0, 1 or 2
    epoch 1: 512 lines in 27 shares, each once: True; by worker: ...
    epoch 2: 512 lines in 27 shares, each once: True; by worker: ...
    epoch 3: 512 lines in 27 shares, each once: True; by worker: ...
    the slowest worker took the fewest shares: True; w is 3.000
"""
from __future__ import annotations

import collections
import os
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.coordinator import PerWorkerValues

FILES = [7, 300, 45, 160]  # lines
SHARE = 20  # lines of a share
PAUSES = [0.0, 0.02, 0.2]  # seconds of a step, by worker
EPOCHS = 3


def write_files(folder):
  """Writes files with lines of a number, x and y = 3 x; returns their paths."""
  paths, number = [], 0
  for index, lines in enumerate(FILES):
    paths.append(os.path.join(folder, "%d.csv" % index))
    with open(paths[-1], "w", encoding="utf-8") as file:
      for _ in range(lines):
        x = number % 10 / 10.0
        file.write("%d,%.1f,%.1f\n" % (number, x, 3 * x))
        number += 1
  return paths


def shares_of(paths):
  """Returns the shares of an epoch: the path, the first line and the number of lines of each."""
  return [(path, np.int64(first), np.int64(min(SHARE, lines - first)))
          for path, lines in zip(paths, FILES) for first in range(0, lines, SHARE)]


def own_index():
  """Returns the index of the worker whose graph this is: the device of an operation names it."""
  return tf.DeviceSpec.from_string(tf.no_op().device).task


def train(path, first, count, index):
  """One step on a share of the data; returns the numbers of its lines, and the worker."""
  lines = tf.data.experimental.get_single_element(
    tf.data.TextLineDataset(path).skip(first).take(count).batch(SHARE))
  numbers, x, y = tf.decode_csv(lines, [[0], [0.0], [0.0]])
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  loss = tf.reduce_mean(tf.square(w * x - y))
  update = tf.train.GradientDescentOptimizer(0.5).minimize(
    loss, tf.train.get_or_create_global_step())
  with tf.control_dependencies([update]):
    slowed = tf.numpy_function(lambda: time.sleep(PAUSES[index]) or np.int32(index), [], tf.int32)
    return numbers, slowed


def main():
  """Trains some epochs on a cluster in this process."""
  tf.disable_v2_behavior()
  print("files of %d, %d, %d and %d lines; a share takes %g, %g or %g s more on worker 0, 1 or 2"
        % (*FILES, *PAUSES), flush=True)
  taken = collections.Counter()
  with tempfile.TemporaryDirectory() as folder, \
      tf1ps.local_cluster(num_ps=2, num_workers=len(PAUSES), chief=True) as cluster, \
      tf1ps.ClusterCoordinator(cluster.chief) as coordinator:
    shares = shares_of(write_files(folder))
    index = PerWorkerValues(own_index)
    for epoch in range(1, EPOCHS + 1):
      steps = [coordinator.schedule(train, share + (index,)) for share in shares]
      coordinator.join()
      numbers, workers = zip(*coordinator.fetch(steps))
      found = sorted(np.concatenate(numbers))
      by_worker = collections.Counter(int(worker) for worker in workers)
      taken.update(by_worker)
      print("epoch %d: %d lines in %d shares, each once: %s; by worker: %s" % (
        epoch, len(found), len(shares), found == list(range(sum(FILES))),
        ", ".join("%d" % by_worker[worker] for worker in range(len(PAUSES)))), flush=True)
    w = coordinator.run(lambda: tf.get_variable("w", []))
  print("the slowest worker took the fewest shares: %s; w is %.3f" % (
    min(range(len(PAUSES)), key=taken.__getitem__) == len(PAUSES) - 1, w))


if __name__ == "__main__":
  main()
