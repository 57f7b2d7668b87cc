"""An ensemble of processes linked by queues: what happens when network 2 of three is dead.

Example B35. Section: parallel.
Mechanism: a feeder puts inputs into a queue for each network. Each network puts its predictions
into a queue of its own. An aggregator takes them out, with a timeout. Network i predicts 2 + 4 i
times its input. Network 2 never starts. The aggregator waits for it once, for five seconds, and
then leaves it out.
What to look for: one `dequeue_many(3)` with a timeout is not enough. It loses the predictions of
the living networks, and answers no later request. Here each network has a queue of its own, the
number of the request joins the predictions of one answer, and a timeout loses no element.
Toolkit: tf1ps.replication.QueueEnsemble (docs/ensembles.md).

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
answer or two later it has the predictions of network 2. With --last the feeder closes the ensemble.
The networks and the aggregator end after the last request, and the ps ends after the aggregator.
"""

import argparse

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.replication import Aggregator, Feeder, Network, QueueEnsemble
from tf1ps.state import Barrier, DoneQueues

PS = "/job:ps/task:0"


def serve(network, session, index, together):
  """A network, which is computed in a graph and a session of its own."""
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [None])
    y = (2.0 + 4.0 * index) * x
  with tf.Session(graph=graph) as model:
    model.run(y, {x: [0.0]})  # the first run takes longer
    print("%s serves" % network.name, flush=True)
    together()
    count = network.serve(session, lambda inputs: model.run(y, {x: inputs}))
  print("%s has answered %d requests" % (network.name, count), flush=True)


def feed(feeder, session, inputs, is_last):
  """Asks for each input, and may close the ensemble."""
  for value in inputs:
    feeder.feed(session, value, timeout=60.0)
  if is_last:
    session.run(feeder.close)


def aggregate(one, session):
  """Prints the answers."""
  for answer in one.answers(session):
    for name in answer.timed_out:
      print(name, "timed out")
    for name in answer.back:
      print(name, "is back")
    print(answer.predictions.tolist(), "mean", answer.combined, flush=True)


def main():
  """Plays one role."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--role", choices=["ps", "net", "feeder", "aggregator"],
                      help="none: all of them")
  parser.add_argument("--index", type=int, default=0, help="of a network")
  parser.add_argument("--networks", type=int, default=3, help="how many the ensemble has")
  parser.add_argument("--ps", default="127.0.0.1:2241", help="its address")
  parser.add_argument("--inputs", default="1", help="of a feeder: numbers")
  parser.add_argument("--last", action="store_true", help="no more requests will come")
  parser.add_argument("--timeout", type=float, default=1.0, help="seconds that an answer waits")
  parser.add_argument("--together", type=int, default=0,
                      help="processes that meet first: feeder, aggregator, networks from 0 on")
  parser.add_argument("--quorum", type=int, default=2, help="networks that must answer")
  flags = parser.parse_args()
  if not flags.role:
    common = ["--ps=" + find_free_addresses(1)[0], "--together=4"]
    return run_together(main, *[common + role for role in [
      ["--role=aggregator", "--timeout=5"], ["--role=net", "--index=0"],
      ["--role=net", "--index=1"], ["--role=feeder", "--inputs=1,2", "--last"], ["--role=ps"]]])
  tf.disable_v2_behavior()
  done = DoneQueues(1, ["the aggregator"], places=[PS], container="")
  if flags.role == "ps":
    server = tf1ps.Server({"ps": [flags.ps]}, "ps", 0, persistent=True)
    with tf.Session(server.target) as session:
      done.wait(session, timeout=3600.0)
    return
  ensemble = QueueEnsemble("example", flags.networks, device=PS)
  if flags.together:
    member = {"feeder": 0, "aggregator": 1, "net": 2 + flags.index}[flags.role]
    together = Barrier("ready", flags.together, member, device=PS)
  if flags.role == "net":
    network = Network(ensemble, flags.index)
  elif flags.role == "feeder":
    feeder = Feeder(ensemble)
  else:
    one = Aggregator(ensemble, flags.timeout, flags.quorum)

  with tf.Session("grpc://" + flags.ps) as session:
    def meet():
      if flags.together:
        together.wait(session, timeout=100.0)

    if flags.role == "net":
      serve(network, session, flags.index, meet)
    elif flags.role == "feeder":
      meet()
      feed(feeder, session, [float(value) for value in flags.inputs.split(",")], flags.last)
    else:
      print("the aggregator waits for requests", flush=True)
      meet()
      aggregate(one, session)
      done.report(session, 0)


if __name__ == "__main__":
  main()
