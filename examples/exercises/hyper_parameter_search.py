"""Eight networks with different hyper-parameters, trained in parallel on a cluster of four tasks.

Example X8.
Mechanism: one client program, one_network.py, that runs once for each set of hyper-parameters, with
flags for the server, the device, the container and the set.
The networks have variables of the same names, and each network has a container of its own. So two
networks can share a task, and you can find or reset one without the others. Four clients run at a
time, one for each task. A validation set, which no network was trained with, picks the top three.
Ask a third set how good they are (ensemble_of_three.py): the best of eight are lucky, too.
What to look for: all clients have ended when the search compares; the networks stay on the servers.
The largest need not be the best. Each network has seen a quarter of the training set only, and not
the same quarter as the others, so another --seed gives another order. With this seed, measured on 2
cores: 313, 326, 309, 327, 327, 325, 325 and 333; so 7, 3 and 4 were chosen.
Toolkit: tf1ps.launch starts the processes (task_processes.py); containers
(docs/cluster.md#containers).

    $ python examples/exercises/hyper_parameter_search.py
    network    task  hidden  rate  right of 360
    network-0     0      16   0.1  ...
    network-1     1      16   0.2  ...
    network-2     2      32   0.1  ...
    network-3     3      32   0.2  ...
    network-4     0      48   0.1  ...
    network-5     1      48   0.2  ...
    network-6     2      64   0.1  ...
    network-7     3      64   0.2  ...
    the top three: network-..., network-..., network-...
"""

import json

import one_network
import task_processes
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses
from tf1ps.state import DoneQueues

flags.DEFINE_list("hosts", None, "Of the tasks; none: free ones.")
flags.DEFINE_bool("for_ensemble", False,
                  "Keep the servers until ensemble_of_three.py has used the networks.")
FLAGS = flags.FLAGS  # with --seed, which one_network.py defines

SETS = [(hidden, rate) for hidden in (16, 32, 48, 64) for rate in (0.1, 0.2)]
FIRST = "/job:worker/task:0"


def client(hosts, number, seed):
  """The command line of the client that trains a network."""
  hidden, rate = SETS[number]
  task = number % len(hosts)
  return ["one_network.py", "--server=grpc://" + hosts[task],
          "--device=/job:worker/task:%d" % task, "--container=network-%d" % number,
          "--hidden=%d" % hidden, "--rate=%g" % rate, "--seed=%d" % (100 * seed + number)]


def search(forks, hosts, seed):
  """Trains all networks, as many at a time as there are tasks; returns what their clients print."""
  networks = []
  for first in range(0, len(SETS), len(hosts)):
    started = [task_processes.start(forks, "client %d" % number, app.run, one_network.main,
                                    client(hosts, number, seed))
               for number in range(first, min(first + len(hosts), len(SETS)))]
    networks += [json.loads(task_processes.finish(forks, process)[-1]) for process in started]
  return networks


def hand_over(target, chosen):
  """Puts the chosen into a queue, and waits until whoever takes them is done."""
  queue = tf1ps.FIFOQueue(1, [tf.string], [[]], shared_name="top three", device=FIRST)
  done = DoneQueues(1, ["the ensemble"], places=[FIRST], container="")
  with tf.Session(target) as session:
    queue.put(session, json.dumps(chosen), timeout=60.0)
    done.wait(session, timeout=600.0, linger=1.5)


def main(_):
  """Starts the servers, has all networks trained, and picks the top three."""
  tf.disable_v2_behavior()
  hosts = FLAGS.hosts or find_free_addresses(4)
  with task_processes.forks_of("one_network") as forks:
    task_processes.start_servers(forks, hosts)
    networks = search(forks, hosts, FLAGS.seed)
    print("network    task  hidden  rate  right of 360")
    for network in networks:
      print("%s %5s  %6d  %4.1f  %d" % (network["container"], network["device"][-1],
                                        network["hidden"], network["rate"], network["right"]))
    chosen = sorted(networks, key=lambda network: (-network["right"], network["loss"]))[:3]
    print("the top three:", ", ".join(network["container"] for network in chosen), flush=True)
    if FLAGS.for_ensemble:
      hand_over("grpc://" + hosts[0], chosen)


if __name__ == "__main__":
  app.run(main)
