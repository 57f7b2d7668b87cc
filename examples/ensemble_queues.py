"""An ensemble of processes linked by queues: what happens when network 2 of three is dead.

Example B35. Section: parallel.
Read book/ensemble_by_queues.py first, which has the mechanism alone.
Mechanism: a feeder puts inputs into a queue for each network. Each network puts its predictions
into a queue of its own. An aggregator takes them out, with a timeout. Network i predicts 2 + 4 i
times its input. Network 2 never starts. The aggregator waits for it once, for five seconds, and
then leaves it out.
What to look for: one `dequeue_many(3)` with a timeout is not enough. It loses the predictions of
the living networks, and answers no later request. Here each network has a queue of its own, the
number of the request joins the predictions of one answer, and a timeout loses no element.

1. A request's number is the time of the ps at which it was fed, so numbers grow. The feeder puts
   the number into the queue of requests, and then number and input into the queue of each network.
   A network whose queue is full misses the request, and nobody waits for room.
2. A network puts its predictions into its own queue, each with the number and age of its request.
3. The aggregator keeps predictions for later requests and drops those for earlier ones. It waits
   until each network that is not left out has answered, at least one has, or the time is over.
4. A network that is left out is back when it makes a prediction within the time, by the clock of
   the ps. So no request waits for a network that is always slow or works off old requests.

Toolkit: tf1ps.FIFOQueue, whose `get` and `put` lose nothing (docs/replication.md#ensembles).

    $ python examples/ensemble_queues.py
    the aggregator waits for requests
    net 2 timed out
    [2.0, 6.0] mean 4.0
    [4.0, 12.0] mean 8.0
    net 0 serves
    net 0 has answered 2 requests
    net 1 serves
    net 1 has answered 2 requests

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/ensemble_queues.py --ps=127.0.0.1:2241 --together=4 --role=aggregator \
        --timeout=5
    2$ python examples/ensemble_queues.py --ps=127.0.0.1:2241 --together=4 --role=net --index=0
    3$ python examples/ensemble_queues.py --ps=127.0.0.1:2241 --together=4 --role=net --index=1
    4$ python examples/ensemble_queues.py --ps=127.0.0.1:2241 --together=4 --role=feeder \
        --inputs=1,2 --last
    5$ python examples/ensemble_queues.py --ps=127.0.0.1:2241 --together=4 --role=ps

With --together=4 the feeder, the aggregator and networks 0 and 1 wait for each other before the
first request, so that a late start looks like no death. Without it, and without --last, start the
tasks one by one, and network 2 at any time. The aggregator then prints "net 2 is back", and an
answer or two later it has the predictions of network 2. One feeder runs at a time. With --last it
closes the queues. The networks and the aggregator end after the last request, and the ps ends after
the aggregator.
"""

import contextlib
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import Barrier, DoneQueues, QueueEmpty, QueueEnded, QueueFull

flags.DEFINE_enum("role", None, ["ps", "net", "feeder", "aggregator"], "None: all of them.")
flags.DEFINE_integer("index", 0, "Of a network.")
flags.DEFINE_integer("networks", 3, "How many the ensemble has.")
flags.DEFINE_string("ps", "127.0.0.1:2241", "Its address.")
flags.DEFINE_list("inputs", ["1"], "Of a feeder: numbers.")
flags.DEFINE_bool("last", False, "No more requests will come.")
flags.DEFINE_float("timeout", 1.0, "Seconds that an answer waits.")
flags.DEFINE_integer("together", 0, "Processes that meet first: feeder, aggregator, networks from "
                     "0 on.")
FLAGS = flags.FLAGS

PS = "/job:ps/task:0"


class Queues:
  """The queues of an ensemble and the clock of the ps, the same in every process."""

  def __init__(self, networks):
    """Builds them in the default graph."""
    def queue(name, capacity, *types):
      return tf1ps.FIFOQueue(capacity, list(types), [[]] * len(types), device=PS,
                             shared_name="ensemble/" + name)

    indices = range(networks)
    self.requests = queue("requests", 100, tf.int64)
    self.inputs = [queue("inputs/%d" % i, 101, tf.int64, tf.float32) for i in indices]
    # Without a limit: a network never waits for room. The requests limit the number of elements.
    self.predictions = [
      queue("predictions/%d" % i, -1, tf.int64, tf.int64, tf.float32) for i in indices]
    with tf.device(PS):
      self.now = tf.cast(1e6 * tf.timestamp(), tf.int64)  # in microseconds
    self.close = tf.group(*[each.close() for each in [self.requests] + self.inputs])


def feed(session, queues, value):
  """Sends a request to all networks."""
  number = session.run(queues.now)
  queues.requests.put(session, number, timeout=60.0)
  for queue in queues.inputs:
    with contextlib.suppress(QueueFull):
      queue.put(session, [number, value], timeout=0)


def answer(session, queues, index, predict):
  """Predicts for the requests that wait for network `index`; returns their number."""
  numbers, inputs = queues.inputs[index].get(session, 32, up_to=True)
  values = predict(inputs)
  queues.predictions[index].put(
    session, [numbers, session.run(queues.now) - numbers, values], many=True)
  return len(numbers)


def serve(session, queues, index, together):
  """A network, which is computed in a graph and a session of its own."""
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [None])
    y = (2.0 + 4.0 * index) * x
  count = 0
  with tf.Session(graph=graph) as model:
    model.run(y, {x: [0.0]})  # the first run takes longer
    print("net %d serves" % index, flush=True)
    together()
    with contextlib.suppress(QueueEnded):
      while True:
        count += answer(session, queues, index, lambda inputs: model.run(y, {x: inputs}))
  print("net %d has answered %d requests" % (index, count), flush=True)


class Aggregator:
  """Makes one answer of the predictions for a request."""

  def __init__(self, session, queues, timeout):
    """Prepares for the first request; an answer waits `timeout` seconds."""
    self._session, self._queues, self._timeout = session, queues, timeout
    self._left_out = set()
    self._heard = {}  # {number of a request: {network: prediction}}

  def answer(self):
    """Returns the predictions for the next request, in the order of the networks."""
    number = self._queues.requests.get(self._session)
    heard = self._heard.setdefault(number, {})
    end = time.monotonic() + self._timeout
    while True:
      self._hear(number)
      missing = set(range(len(self._queues.predictions))) - set(heard) - self._left_out
      if heard and not missing or time.monotonic() > end:
        break
      time.sleep(0.01)
    for index in sorted(missing):
      print("net %d timed out" % index, flush=True)
    self._left_out |= missing
    self._heard = {later: answers for later, answers in self._heard.items() if later > number}
    return [heard[index] for index in sorted(heard)]

  def _hear(self, number):
    """Takes all predictions that are there; `number` is that of the present request."""
    for index, queue in enumerate(self._queues.predictions):
      with contextlib.suppress(QueueEmpty):
        for of, age, value in zip(*queue.get(self._session, 1000, up_to=True, timeout=0)):
          if of >= number:
            self._heard.setdefault(of, {})[index] = float(value)
          if index in self._left_out and age <= 1e6 * self._timeout:
            self._left_out.remove(index)
            print("net %d is back" % index, flush=True)


def aggregate(session, queues, timeout):
  """Prints the answers to all requests."""
  aggregator = Aggregator(session, queues, timeout)
  with contextlib.suppress(QueueEnded):
    while True:
      predictions = aggregator.answer()
      if predictions:
        print(predictions, "mean", np.mean(predictions), flush=True)
      else:
        print("no network answered", flush=True)


def main(_):
  """Plays one role."""
  if not FLAGS.role:
    common = ["--ps=" + find_free_addresses(1)[0], "--together=4"]
    return run_together(lambda: app.run(main), *[common + role for role in [
      ["--role=aggregator", "--timeout=5"], ["--role=net", "--index=0"],
      ["--role=net", "--index=1"], ["--role=feeder", "--inputs=1,2", "--last"], ["--role=ps"]]])
  tf.disable_v2_behavior()
  done = DoneQueues(1, ["the aggregator"], places=[PS], container="")
  if FLAGS.role == "ps":
    server = tf1ps.Server({"ps": [FLAGS.ps]}, "ps", 0, persistent=True)
    with tf.Session(server.target) as session:
      done.wait(session, timeout=3600.0)
    return
  queues = Queues(FLAGS.networks)
  if FLAGS.together:
    member = {"feeder": 0, "aggregator": 1, "net": 2 + FLAGS.index}[FLAGS.role]
    together = Barrier("ready", FLAGS.together, member, device=PS)

  with tf.Session("grpc://" + FLAGS.ps) as session:
    def meet():
      if FLAGS.together:
        together.wait(session, timeout=100.0)

    if FLAGS.role == "net":
      serve(session, queues, FLAGS.index, meet)
    elif FLAGS.role == "feeder":
      meet()
      for value in FLAGS.inputs:
        feed(session, queues, float(value))
      if FLAGS.last:
        session.run(queues.close)
    else:
      print("the aggregator waits for requests", flush=True)
      meet()
      aggregate(session, queues, FLAGS.timeout)
      done.report(session, 0)


if __name__ == "__main__":
  app.run(main)
