"""Measures how long each way of training takes from its first step to 97 % accuracy on MNIST.

The network is 784-100-10 with plain gradient descent. The data is MNIST's four files in the folder
that `--mnist` or `TF1PS_MNIST` names. A process beside the jobs reads the variables from the ps
twice a second and computes the accuracy on the test images, in the same way for all systems. Each
run starts a new job, and the systems take turns.
"""
from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import List

import numpy as np

from benchmarks import comparisons, interleaving, jobs, links, models, rows, systems

GOAL = 0.97
_LIMIT = 300.0  # seconds that a system may take
_EVERY = 0.5  # seconds
LINES = (
  comparisons.CLASSIC,
  comparisons.CLASSIC._replace(name="classic, 2 workers", workers=2),
  comparisons.DEFAULTS,
  comparisons.tf1ps("8 steps per run", "--steps_per_execution=8"),
  comparisons.tf1ps("16 bits", "--wire_dtype=bfloat16"),
  comparisons.tf1ps("2 workers", workers=2),
  comparisons.tf1ps("2 workers, sync", "--sync_replicas", workers=2, minibatches_per_step=2),
)


def run(args) -> List[dict]:
  """Measures; the rows also have the keys "seconds", and "steps" to the goal."""
  folder = args.mnist or os.environ.get("TF1PS_MNIST")
  if not folder:
    raise interleaving.Skipped("neither --mnist nor TF1PS_MNIST names MNIST's folder")
  os.environ["TF1PS_MNIST"] = os.path.abspath(folder)
  lines = [line for line in LINES if args.only in line.name or line is comparisons.CLASSIC]
  found = interleaving.alone(lines, args.rounds, _seconds)
  base = [seconds for seconds, _ in found[comparisons.CLASSIC.name]]
  return [_row(line, found[line.name], base) for line in lines if found[line.name]]


def _row(line, runs, base):
  seconds = [one for one, _ in runs]
  made = rows.row("mnist", "loopback", line.name, " ".join(line.options),
                  [steps / one for one, steps in runs])
  return dict(
    made, seconds=rows.summary(seconds), steps=rows.summary([steps for _, steps in runs]),
    times_as_fast=rows.summary(base)["median"] / rows.summary(seconds)["median"] if base else None)


def _seconds(line, folder, reader):
  """Returns the seconds from the first step to the goal, and the number of steps."""
  job = jobs.Job(line, systems.Run("mnist", folder, links.LOOPBACK), reader)
  watch = None
  try:
    container = systems.CONTAINER if line.peer == "tf1ps" else "-"
    watch = subprocess.Popen(
      [sys.executable, "-m", "benchmarks.mnist_97", job.addresses["ps"][0], container,
       line.variables], cwd=systems.ROOT, env=systems.environment(), stdin=subprocess.PIPE,
      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    watch.stdout.readline()  # TensorFlow is imported, and the images are read
    job.wait_for_steps(1, every=0.02)
    began, first = time.monotonic(), job.steps()[0]
    watch.stdin.close()
    while True:
      job.check()
      words = watch.stdout.readline().split()
      if not words:
        raise jobs.JobError("the process that computes accuracies has ended")
      if float(words[0]) >= GOAL:
        return float(words[1]) - began, job.steps()[0] - first
      if time.monotonic() - began > _LIMIT:
        raise jobs.JobError("%s: accuracy %s after %.0f s" % (line.name, words[0], _LIMIT))
  finally:
    job.end()
    if watch is not None:
      watch.kill()
      watch.wait()


def _accuracy(images, labels, values):
  w0, b0, w1, b1 = values
  scores = np.maximum(images.dot(w0) + b0, 0).dot(w1) + b1
  return float((scores.argmax(1) == labels).mean())


def main(address: str, container: str, variables: str) -> None:
  """Prints "ACCURACY SECONDS" twice a second; SECONDS is the time of the reading."""
  import tensorflow.compat.v1 as tf

  tf.disable_v2_behavior()
  model = models.get("mnist")
  data = models.data(model)
  images = models.eval_features(data)
  with tf.Graph().as_default() as graph:
    with graph.container("" if container == "-" else container), tf.device("/job:ps/task:0"), \
        tf.variable_scope("model", use_resource=variables == "resource"):
      found = [models.graph_variables(tf, model)(name) for name, _ in models.initial_values(model)]
    print("ready", flush=True)
    sys.stdin.read()  # until there is a first step
    with tf.Session("grpc://" + address) as session:
      while True:
        at = time.monotonic()
        print(_accuracy(images, data.eval_labels, session.run(found)), at, flush=True)
        time.sleep(max(0.0, at + _EVERY - time.monotonic()))


if __name__ == "__main__":
  main(*sys.argv[1:])
