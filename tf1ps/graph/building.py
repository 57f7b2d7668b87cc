"""Logs that a graph is being built, if that takes long, because nothing else is logged then."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Iterator

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING

_log = logging.getLogger("tf1ps")


@contextlib.contextmanager
def says_building(graph: tf.Graph) -> Iterator[None]:
  """Logs how many variables a graph has, every ten seconds until it is final.

  The lines end with the context at the latest.
  """
  ended, began = threading.Event(), time.monotonic()

  def say():
    while not ended.wait(TIMING.reminder_interval) and not graph.finalized:
      _log.info("building the graph, %d variables, %.0f s",
                len(graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)), time.monotonic() - began)

  threading.Thread(target=say, daemon=True, name="tf1ps: building the graph").start()
  try:
    yield
  finally:
    ended.set()
