"""Measures the work before the first step, in a separate process: graphs and sessions.

`python -m benchmarks.setup_times graph MODEL classic|tf1ps` prints the seconds that building a
worker's graph takes, and its number of operations.

`python -m benchmarks.setup_times sessions TASKS` starts a cluster of TASKS servers in this process,
one of them a ps. It prints how long a new session of a worker takes from its creation to the end of
its first run: with device filters that show only the ps and the worker, and without filters.
"""
from __future__ import annotations

import json
import sys
import time

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

from benchmarks import models  # noqa: E402
from tf1ps.launch import find_free_addresses  # noqa: E402

_REPEATS = 5


def graph_seconds(model: str, kind: str) -> dict:
  """Returns the seconds to build a graph, and its number of operations."""
  from benchmarks.peers import bare, classic

  command = ["--model=" + model, "--ps_hosts=127.0.0.1:2222", "--worker_hosts=127.0.0.1:2223"]
  args = (classic.make_parser() if kind == "classic" else arguments.parser("")).parse_args(command)
  models.data(models.get(model))  # the same for both kinds, so it is not measured
  began = time.perf_counter()
  if kind == "classic":
    classic.build(args, {"ps": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}, evaluates=False)
  else:
    bare.build(args)
  seconds = time.perf_counter() - began
  return {"seconds": seconds, "operations": len(tf.get_default_graph().get_operations())}


def session_seconds(tasks: int) -> dict:
  """Returns the seconds of a first run, with and without filters: the smallest of several."""
  addresses = find_free_addresses(tasks)
  cluster = {"ps": addresses[:1], "worker": addresses[1:]}
  servers = [tf.train.Server(cluster, "ps", 0)]
  servers += [tf.train.Server(cluster, "worker", index) for index in range(tasks - 1)]
  with tf.device("/job:ps/task:0"):
    one = tf.constant(1.0)
  with tf.device("/job:worker/task:0"):
    two = one + 1.0
  found = {}
  for name, filters in (("filtered", ["/job:ps", "/job:worker/task:0"]), ("unfiltered", [])):
    seconds = []
    for _ in range(_REPEATS):
      began = time.perf_counter()
      with tf.Session(servers[1].target, config=tf.ConfigProto(device_filters=filters)) as session:
        session.run(two)
        seconds.append(time.perf_counter() - began)
    found[name] = min(seconds)
  return found


def main(arguments_given) -> None:
  """Prints the requested measurement as JSON."""
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  what, *rest = arguments_given
  found = graph_seconds(*rest) if what == "graph" else session_seconds(int(rest[0]))
  print(json.dumps(found), flush=True)
  sys.stdout.flush()


if __name__ == "__main__":
  import os

  main(sys.argv[1:])
  os._exit(0)  # servers end with their process
