from __future__ import annotations

import itertools
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tests.state import queue_tasks
from tf1ps.cluster.description import Task
from tf1ps.state import queue_errors, queues

COUNT = 10000


def taken(task):
  """What a consumer says that it took."""
  return [int(word) for line in list(task.lines) if line.startswith("took ")
          for word in line.split()[1:]]


@pytest.mark.slow
def test_who_comes_too_late_does_not_block(start):
  ps = Task("ps", 0, harness.addresses(1)[0])
  start("ps", cluster_tasks.serve, {"ps": [ps.address]}, "ps", 0).wait_for("up")
  with tf.Graph().as_default() as graph:
    queue = queues.FIFOQueue(4, tf.int32, [()], shared_name="late", device=ps.name)
  sessions = [tf.Session("grpc://" + ps.address, graph) for _ in range(4)]
  over, took = threading.Event(), []

  def take(session):
    while not over.is_set():
      try:
        took.append(queue.get(session, 4, timeout=0).tolist())
      except queue_errors.QueueEmpty:
        pass

  takers = [threading.Thread(target=take, args=(session,), daemon=True) for session in sessions[1:]]
  for taker in takers:
    taker.start()
  for number in range(300):
    queue.put(sessions[0], [number] * 4, many=True, timeout=60)
  harness.wait_until(lambda: len(took) == 300)
  over.set()
  for taker in takers:
    taker.join(60)
  # One that had looked before another took would now wait in the ps for what never comes.
  assert not any(taker.is_alive() for taker in takers)
  assert sorted(took) == [[number] * 4 for number in range(300)]
  for session in sessions:
    session.close()


@pytest.mark.slow
def test_ten_thousand_elements_and_a_consumer_that_is_killed(start):
  ps = Task("ps", 0, harness.addresses(1)[0])
  start("ps", cluster_tasks.serve, {"ps": [ps.address]}, "ps", 0).wait_for("up")
  where = "grpc://" + ps.address, ps.name
  consumers = [start("consumer", queue_tasks.consume, *(where + (i,))) for i in range(3)]
  producers = [start("producer", queue_tasks.produce, *(where + (first, COUNT // 2)))
               for first in (0, COUNT // 2)]
  harness.wait_until(lambda: sum(len(taken(one)) for one in consumers) > COUNT // 4
                     and len(taken(consumers[0])) > 100, 90)
  consumers[0].kill()
  assert sum(len(taken(one)) for one in consumers) < COUNT  # it was killed in the middle
  consumers.append(start("consumer again", queue_tasks.consume, *(where + (3,))))
  for producer in producers:
    producer.wait_for("produced", 90)
  with tf.Graph().as_default() as graph:
    queue = queues.FIFOQueue(200, tf.int32, [()], shared_name="stress", device=ps.name,
                             container="stress")
    close = queue.close()
  with tf.Session(where[0], graph) as session:
    session.run(close)
  for consumer in consumers[1:]:
    assert consumer.wait() == 0, consumer.output
    assert consumer.last_line == "ended"

  every = sorted(itertools.chain.from_iterable(taken(one) for one in consumers))
  assert len(set(every)) == len(every)  # none twice
  missing = set(range(COUNT)) - set(every)
  # Only the last question of the killed one may have taken elements that nobody told of.
  last = [line for line in consumers[0].lines if line.startswith(("asks ", "took "))][-1]
  held = int(last.split()[1]) if last.startswith("asks ") else 0
  assert len(missing) <= held, (sorted(missing), consumers[0].lines[-6:])
  # In a FIFO queue these are neighbours, of one producer or of each.
  for producer in range(2):
    part = sorted(n for n in missing if n // (COUNT // 2) == producer)
    assert not part or part[-1] - part[0] == len(part) - 1, part
  # Each consumer saw each producer's elements in their order.
  for consumer in consumers:
    for producer in range(2):
      part = [n for n in taken(consumer) if n // (COUNT // 2) == producer]
      assert part == sorted(part)
