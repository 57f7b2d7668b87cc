from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.state import queue_call, queue_errors, queues


def test_a_call_that_waits_is_listed_until_it_returns():
  with tf.Graph().as_default():
    queue = queues.FIFOQueue(1, tf.int32, [], name="batches")
    with tf.Session() as session:
      with pytest.raises(queue_errors.QueueTimeout):
        queue.get(session, timeout=0.01)
      found = []
      caller = threading.Thread(target=lambda: found.append(queue.get(session, timeout=60)))
      caller.start()
      waiting, = harness.wait_until(
        lambda: [one for one in queue_call.waiting_calls() if one.seconds >= 0.1])
      assert waiting.name == "batches" and waiting.call.startswith("get")
      queue.put(session, 5)
      caller.join(harness.LIMIT)
      assert found == [5]
  harness.wait_until(lambda: queue_call.waiting_calls() == [], what="the end of the wait")
