"""`tf.queue`: the queues, from which no element is lost."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(__name__, tf.queue, {
  "state": ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"]})
