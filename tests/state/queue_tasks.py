"""What the tests of queues run as processes: callers that wait, producers and consumers.

`Waiting` has several calls wait on queues of one container, TensorFlow's own operations and ours,
each in a thread. The table of what is left after an event (after_table.py) is made with it, also
inside of a process that is killed.
"""
from __future__ import annotations

import contextlib
import random
import threading

import numpy as np
import tensorflow.compat.v1 as tf

from tests import harness
from tests.cluster_tasks import say, stay
from tests.state import after_table
from tf1ps.state import queue_errors, queues

# What a server does to make a graph faster would be most of its work: each run is made once or so.
_CONFIG = tf.ConfigProto()
_CONFIG.graph_options.rewrite_options.disable_meta_optimizer = True
# How each call of the table is made.
STOCK = {
  "dequeue": lambda q: q.dequeue(),
  "dequeue_many(4)": lambda q: q.dequeue_many(4),
  "dequeue_up_to(4)": lambda q: q.dequeue_up_to(4),
  "enqueue": lambda q: q.enqueue(elements(q, 5)),
  "enqueue_many of 3": lambda q: q.enqueue_many(elements(q, [5, 6, 7])),
}
TRY = {
  "try_dequeue_many(4)": lambda q: q.try_dequeue_many(4),
  "try_dequeue_many(4, up_to=True)": lambda q: q.try_dequeue_many(4, up_to=True),
  "try_enqueue_many of 3": lambda q: q.try_enqueue_many(elements(q, [5, 6, 7])),
  "try_enqueue_many of 3, up_to=True": lambda q: q.try_enqueue_many(
    elements(q, [5, 6, 7]), up_to=True),
}
OURS = {
  "get()": lambda q, *args: q.get(args[0], timeout=args[1]),
  "get(4)": lambda q, *args: q.get(args[0], 4, timeout=args[1]),
  "get(4, up_to=True)": lambda q, *args: q.get(args[0], 4, up_to=True, timeout=args[1]),
  "put": lambda q, *args: q.put(args[0], elements(q, 5), timeout=args[1]),
  "put of 3": lambda q, *args: q.put(
    args[0], elements(q, [5, 6, 7]), timeout=args[1], many=True),
}


def make_queue(module, kind, name, capacity=after_table.CAPACITY):
  """A queue of int32, in TensorFlow's module or ours."""
  least = {"min_after_dequeue": 0} if kind == "RandomShuffleQueue" else {}
  return getattr(module, kind)(
    capacity, shapes=[()], shared_name=name, **least,
    **{"types" if kind == "PriorityQueue" else "dtypes": tf.int32})


def elements(queue, values):
  """Numbers as elements of the queue: in a PriorityQueue each is its own priority."""
  return [values] * len(queue.dtypes)


def numbers(queue, got):
  """The numbers among what came out of the queue, as elements or with a priority each."""
  got = got[-1] if len(queue.dtypes) > 1 else got
  return sorted(np.atleast_1d(got).tolist())


class _CountedSession:
  """A session as far as `get` and `put` use one, which counts what it runs."""

  def __init__(self, session):
    self.graph, self.sess_str, self.runs, self._session = (
      session.graph, session.sess_str, 0, session)

  def run(self, *args):
    result = self._session.run(*args)
    self.runs += 1
    return result


class Waiting:
  """Calls on queues of their own, which all wait, in one session.

  Attributes:
    outcomes: {call: what it returned, or the name of its error's type}, of those that have ended.
    session: that of the calls.
    aside: another one, which looks and closes.
  """

  def __init__(self, target, device, kind, container, calls):
    """Builds the graph.

    Args:
      target: of the session.
      device: where the queues are.
      kind: the class of the queues.
      container: where the queues are.
      calls: names of calls.
    """
    self.outcomes = {}
    self._queues, self._ops, self._fills, self._takes, self._closes = {}, {}, [], {}, {}
    with tf.Graph().as_default() as graph, tf.device(device), tf.container(container):
      begun = tf.queue.FIFOQueue(-1, tf.int32, shared_name="begun")
      self._begun = begun.size()
      for number, name in enumerate(calls):
        self._queues[name] = queue = make_queue(
          tf.queue if name in STOCK else queues, kind, "q%d" % number)
        if name in STOCK:
          with tf.control_dependencies([begun.enqueue(number)]):
            self._ops[name] = STOCK[name](queue)
        elif name in TRY:
          self._ops[name] = TRY[name](queue)
        inside = after_table.SETUPS[name]
        if inside:
          self._fills.append(tf.raw_ops.QueueEnqueueManyV2(
            handle=queue.queue_ref, components=[
              tf.constant(part, dtype)
              for part, dtype in zip(elements(queue, inside), queue.dtypes)]))
        n = tf.placeholder(tf.int32, [])
        self._takes[name] = queue.size(), n, queue.dequeue_many(n)
        for cancel in (False, True):
          self._closes[name, cancel] = queue.close(cancel_pending_enqueues=cancel)
    self.graph = graph
    self.session, self.aside = [tf.Session(target, graph, _CONFIG) for _ in range(2)]
    self._counted = {name: _CountedSession(self.session) for name in calls if name in OURS}

  def fill(self):
    """Puts in what is there before the calls; has the session meet our queues."""
    self.session.run([queue._steps.look for name, queue in self._queues.items()
                      if name not in STOCK])
    self.session.run(self._fills)

  def begin(self, timeout=None):
    """Begins the calls that wait, and returns when all of them do, or have timed out.

    Returns whether each of TensorFlow's operations has begun.
    """
    waiting = [name for name in self._queues if name not in TRY]
    stock = sum(name in STOCK for name in waiting)
    for name in waiting:
      threading.Thread(target=self.call, args=(name, timeout), daemon=True).start()
    if timeout is not None:
      harness.wait_until(lambda: len(self.outcomes) == len(waiting), what="the end of all calls")
      return self.aside.run(self._begun) == stock
    harness.wait_until(lambda: self.session.run(self._begun) == stock and all(
      session.runs > 1 for session in self._counted.values()), what="the calls")
    self.settle()  # an operation begins to wait at once after it was counted
    return True

  def call(self, name, timeout=None):
    """Makes one call; keeps its outcome."""
    queue = self._queues[name]
    try:
      if name in OURS:
        got = OURS[name](queue, self._counted[name], timeout)
      elif timeout is None:
        got = self.session.run(self._ops[name])
      else:
        got = self.session.run(
          self._ops[name], options=tf.RunOptions(timeout_in_ms=int(1000 * timeout)))
    except Exception as error:
      self.outcomes[name] = type(error).__name__
      return
    if name in TRY:
      self.outcomes[name] = int(got.count)
    else:
      self.outcomes[name] = after_table.DONE if got is None else numbers(queue, got)

  def close(self, cancel, ending):
    """Closes each queue, from another session; returns when the calls named `ending` have ended."""
    def close_one(name):
      try:
        self.aside.run(self._closes[name, cancel])
      except tf.errors.OpError:
        pass  # the test is over while it waits for an enqueue

    closers = [threading.Thread(target=close_one, args=(name,), daemon=True)
               for name in self._queues]
    for closer in closers:
      closer.start()
    for name, closer in zip(self._queues, closers):
      if name in ending:
        closer.join()
    self.wait_for(name for name in ending if name not in TRY)

  def wait_for(self, ending):
    """Waits until these calls have ended."""
    for name in ending:
      harness.wait_until(lambda: name in self.outcomes, what="the end of " + name)  # noqa: B023

  def settle(self, runs=100):
    """Gives the server the time of so many runs."""
    for _ in range(runs):
      self.aside.run(self._begun)

  def take_what_is_left(self):
    """{call: the elements in its queue}, as another session finds them."""
    sizes = self.aside.run({name: size for name, (size, _, _) in self._takes.items()})
    got = self.aside.run({name: take for name, (_, _, take) in self._takes.items()}, {
      n: sizes[name] for name, (_, n, _) in self._takes.items()})
    return {name: numbers(self._queues[name], got[name]) for name in got}


def wait_in_queues(target, device, kind, container, calls):
  """A client that waits in calls until it is killed; says how those end that do before."""
  waiting = Waiting(target, device, kind, container, calls)
  waiting.fill()
  waiting.begin()
  say("all wait")
  for name in calls:
    harness.wait_until(lambda: name in waiting.outcomes)  # noqa: B023
    say("ended:", waiting.outcomes[name])
  stay()


def reset_stock(target, container):
  """TensorFlow's own reset of a container, with a limit; says how it ends."""
  try:
    tf.Session.reset(target, [container], tf.ConfigProto(operation_timeout_in_ms=60000))
    say("reset: done")
  except tf.errors.OpError as error:
    say("reset:", type(error).__name__)


def wait_for_four(target, device, container):
  """Waits for four elements, in TensorFlow's own operation and in ours, until it is killed."""
  with tf.Graph().as_default() as graph, tf.device(device), tf.container(container):
    stock = make_queue(tf.queue, "FIFOQueue", "stock", 10)
    ours = make_queue(queues, "FIFOQueue", "ours", 10)
    take = stock.dequeue_many(4)
  session = tf.Session(target, graph)
  counted = _CountedSession(session)
  threading.Thread(target=session.run, args=(take,), daemon=True).start()
  threading.Thread(target=ours.get, args=(counted, 4), daemon=True).start()
  harness.wait_until(lambda: counted.runs > 3)
  say("asked")
  stay()


def produce(target, device, first, count):
  """Puts so many numbers in, in batches of random sizes, with random timeouts."""
  rng = random.Random(first)
  with _shared(target, device) as (queue, session):
    number = first
    while number < first + count:
      batch = list(range(number, min(number + rng.randint(1, 40), first + count)))
      try:
        queue.put(session, batch, many=True, timeout=rng.uniform(0.001, 0.05))
        number += len(batch)
      except queue_errors.QueueFull:
        pass
  say("produced")


def consume(target, device, seed):
  """Takes batches of random sizes, with random timeouts, until the end; says what it took.

  It says "asks" before each question, so that what a killed one held can be counted.
  """
  rng = random.Random(seed)
  with _shared(target, device) as (queue, session):
    while True:
      n = rng.choice([None, 1, 7, 32])
      say("asks", n or 1)
      try:
        got = queue.get(session, n, up_to=rng.random() < 0.5, timeout=rng.uniform(0.001, 0.05))
      except queue_errors.QueueEmpty:
        continue
      except queue_errors.QueueEnded as ended:
        if ended.status.present:
          continue  # fewer are left than it asked for
        say("ended")
        return
      say("took", *np.atleast_1d(got).tolist())


@contextlib.contextmanager
def _shared(target, device):
  with tf.Graph().as_default() as graph:
    queue = queues.FIFOQueue(200, tf.int32, [()], shared_name="stress", device=device,
                             container="stress")
  with tf.Session(target, graph) as session:
    yield queue, session
