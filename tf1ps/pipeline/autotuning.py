"""tf.data without the thread that can hold up the end of a session.

On TensorFlow 2 every iterator has a thread that tunes its parallelism, and sleeps between two
looks: at first for milliseconds, later for up to a minute. The iterator's end, when its session is
closed, wakes it, but a thread that looks before it counts as cancelled sleeps on, for its whole
time. The close waits for it, with the lock that every other session of the process's server needs.

Without autotuning there is no such thread. `num_parallel_calls=tf.data.AUTOTUNE` then means as many
as there are cores.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def without(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """The dataset, in whose pipelines nothing is tuned.

  Args:
    dataset: a dataset. What is made of the result inherits this; options that are set later win.

  Returns:
    The dataset; on TensorFlow 1.15, whose thread ends when it is told, the same one.
  """
  options = tf.data.Options()
  if not hasattr(options, "autotune"):
    return dataset
  options.autotune.enabled = False
  return dataset.with_options(options)
