"""`tf.contrib.training`."""

from __future__ import annotations

from tf1ps.v1 import namespace as _namespace
from tf1ps.v1.contrib import base as _base

__getattr__, __dir__ = _namespace.overlay(__name__, _base.of("training"), {
  "placement": ["GreedyLoadBalancingStrategy", "byte_size_load_fn"]})
