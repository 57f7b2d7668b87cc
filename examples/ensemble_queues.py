"""An ensemble of processes: what happens when one of three networks is dead.

Network i predicts 2 + 4 i times its input. Start these, each in a shell of its own, and leave
network 2 out:

  python examples/ensemble_queues.py --role=ps
  python examples/ensemble_queues.py --role=net --index=0
  python examples/ensemble_queues.py --role=net --index=1
  python examples/ensemble_queues.py --role=aggregator
  python examples/ensemble_queues.py --role=feeder --inputs=1,2

The aggregator waits a second for network 2, once, and leaves it out:

  net 2 timed out
  [2.0, 6.0] mean 4.0
  [4.0, 12.0] mean 8.0

Start network 2 and feed again, and "net 2 is back": after an answer or two it is among the
predictions. With --last, the feeder closes the ensemble: networks and aggregator end when they have
done what there is. The ps ends by Ctrl-C.
"""

import argparse

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.replication import aggregator, queue_ensemble


def serve(ensemble, session, index):
  """A network, which is computed in a graph and a session of its own."""
  network = queue_ensemble.Network(ensemble, index)
  with tf.Graph().as_default() as graph:
    x = tf.placeholder(tf.float32, [None])
    y = (2.0 + 4.0 * index) * x
  with tf.Session(graph=graph) as model:
    model.run(y, {x: [0.0]})  # the first run takes longer
    print("%s serves" % network.name, flush=True)
    count = network.serve(session, lambda inputs: model.run(y, {x: inputs}))
  print("%s has answered %d requests" % (network.name, count), flush=True)


def feed(ensemble, session, inputs, is_last):
  """Asks for each input, and may close the ensemble."""
  feeder = queue_ensemble.Feeder(ensemble)
  for value in inputs:
    feeder.feed(session, value, timeout=60.0)
  if is_last:
    session.run(feeder.close)


def aggregate(ensemble, session, timeout, quorum):
  """Prints the answers."""
  one = aggregator.Aggregator(ensemble, timeout, quorum)
  print("the aggregator waits for requests", flush=True)
  for answer in one.answers(session):
    for name in answer.timed_out:
      print(name, "timed out")
    for name in answer.back:
      print(name, "is back")
    print(answer.predictions.tolist(), "mean", answer.combined, flush=True)


def main():
  """Plays one role."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--role", choices=["ps", "net", "feeder", "aggregator"], required=True)
  parser.add_argument("--index", type=int, default=0, help="of a network")
  parser.add_argument("--networks", type=int, default=3, help="how many the ensemble has")
  parser.add_argument("--ps", default="127.0.0.1:2241")
  parser.add_argument("--inputs", default="1", help="of a feeder: numbers")
  parser.add_argument("--last", action="store_true", help="no more requests will come")
  parser.add_argument("--timeout", type=float, default=1.0, help="seconds that an answer waits")
  parser.add_argument("--quorum", type=int, default=2, help="networks that must answer")
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  if flags.role == "ps":
    tf1ps.Server({"ps": [flags.ps]}, "ps", 0, standing=True).join()
    return
  ensemble = queue_ensemble.QueueEnsemble("example", flags.networks, device="/job:ps/task:0")
  with tf.Session("grpc://" + flags.ps) as session:
    if flags.role == "net":
      serve(ensemble, session, flags.index)
    elif flags.role == "feeder":
      feed(ensemble, session, [float(value) for value in flags.inputs.split(",")], flags.last)
    else:
      aggregate(ensemble, session, flags.timeout, flags.quorum)


if __name__ == "__main__":
  main()
