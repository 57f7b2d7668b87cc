"""Remedies against stale gradients: the loss that each ends with, and the time that it takes.

Example B41. Section: parallel.
Mechanism: the age of a gradient, and what lessens its harm. The age is the number of updates that
others make between this worker's reading of the variables and its own update.
Four workers update for themselves. A step pauses for 30 ms in place of a computation, and the last
worker's step for 150 ms. One worker alone bears the learning rate, 0.08 with momentum 0.9. All rows
use the same number of examples. The next minibatch goes to the worker that is ready first. No
worker makes up for a dropped gradient.
What to look for: the age, and the loss. The lower rate, damping and a bounded lead help here.
Dropping is not enough: it leaves out the oldest gradients, those of the slow worker. But at this
rate the gradients of the other workers, which are two updates old, already do harm. A larger batch
is not enough either: it makes a quarter of the updates, and these are no fresher. Warm-up begins
with one worker, and one more joins after each quarter of the minibatches. It only delays the harm:
after the last worker has joined, the ages are as before. With a bounded lead all workers wait for
the slowest one, which costs the time that four workers had gained.
The graph is in stale_updates.py.
Toolkit: tf1ps.replication has the policies that `tf1ps-worker` has flags for
(docs/replication.md#staleness).
The barrier between two trials is from tf1ps, too (docs/queues.md#a-barrier).

A short run, which is too short to compare the remedies:

    $ python examples/book/stale_gradients.py --seeds=1 --minibatches=80
    one worker: nothing is stale  loss ... s  age 0.0   0 % dropped
    four workers, no remedy       loss ... s  age ... % dropped
    a quarter of the rate         loss ... s  age ... % dropped
    dropped if older than 2       loss ... s  age ... % dropped
    rate divided by the age       loss ... s  age ... % dropped
    batches of 128                loss ... s  age ... % dropped
    a worker joins each quarter   loss ... s  age ... % dropped
    a lead of 1 at most           loss ... s  age ... % dropped

Without --job_name all tasks start on this machine. By hand, start the ps and each of the workers 0
to 3 in a shell of its own, with --job_name, --task_index and --hosts=PS,WORKER0,...,WORKER3.

Without --minibatches and --seeds the run has 300 minibatches. Below are the evaluation loss as the
median (smallest to largest) of three seeds, the median seconds and the mean age. Measured on 2
cores, TensorFlow 2.21, while the machine did other work, too. Such work changes the ages, and so
the harm: on a quiet machine the row without a remedy had a loss of 34.8, and dropping one of 38.0.

    one worker: nothing is stale  loss   0.132 (0.121 to 0.155)  13.1 s  age 0.0   0 % dropped
    four workers, no remedy       loss  31.236 (25.643 to 33.449)   4.2 s  age 2.6   0 % dropped
    a quarter of the rate         loss   0.200 (0.180 to 0.211)   4.0 s  age 2.6   0 % dropped
    dropped if older than 2       loss   2.620 (0.391 to 3.494)   5.1 s  age 2.2   8 % dropped
    rate divided by the age       loss   0.158 (0.151 to 0.270)   4.3 s  age 2.4   0 % dropped
    batches of 128                loss   1.552 (0.955 to 1.817)   1.4 s  age 2.4   0 % dropped
    a worker joins each quarter   loss   5.414 (2.548 to 7.160)   6.8 s  age 1.3   0 % dropped
    a lead of 1 at most           loss   0.185 (0.136 to 0.221)  12.9 s  age 1.3   0 % dropped
"""

import pathlib
import sys
import time
from typing import NamedTuple

import numpy as np
import stale_updates
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.replication import view_clocks

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_enum("job_name", None, ["ps", "worker"], "None: all tasks.")
flags.DEFINE_integer("task_index", 0, "Of this task in its job.")
flags.DEFINE_list("hosts", None, "One ps, then four workers; none: free ones.")
flags.DEFINE_integer("minibatches", 300, "Of 32, by all together.")
flags.DEFINE_integer("seeds", 3, "Trials of each remedy.")
flags.DEFINE_float("pause_ms", 30, "Of a step; the last worker: x 5.")
FLAGS = flags.FLAGS

BATCH, RATE = 32, 0.08
LIMIT = 100.0  # seconds for the other workers to arrive, or to make a step


class Remedy(NamedTuple):
  """A row of the table: a remedy."""
  name: str
  workers: int = 4
  rate: float = RATE
  update: str = "plain"  # or "drop", "damp"
  batch: int = BATCH
  warm_up: float = 0  # the part of the minibatches after which one more worker joins
  max_lead: int = 0  # steps that a worker may be ahead of the slowest; 0: any number


REMEDIES = [
  Remedy("one worker: nothing is stale", workers=1), Remedy("four workers, no remedy"),
  Remedy("a quarter of the rate", rate=RATE / 4),
  Remedy("dropped if older than %d" % stale_updates.MAX_STALENESS, update="drop"),
  Remedy("rate divided by the age", update="damp"), Remedy("batches of 128", batch=4 * BATCH),
  Remedy("a worker joins each quarter", warm_up=1 / 4), Remedy("a lead of 1 at most", max_lead=1)]


def wait_while(is_early):
  """Asks until the answer is no; a RuntimeError if another worker has stopped."""
  until = time.monotonic() + LIMIT
  while is_early():
    if time.monotonic() > until:
      raise RuntimeError("another worker has made no step within %g s" % LIMIT)
    time.sleep(0.002)


def train(session, model, index, remedy, seed, pause, data, last):
  """Takes its part of the minibatches 1 to `last`."""
  order = np.random.RandomState([seed, index])
  begins_at = min(int(index * remedy.warm_up * last), last)
  wait_while(lambda: session.run(model.tickets) < begins_at)

  def is_ahead():
    return (model.clocks.look(session).lead(index) >= remedy.max_lead
            and session.run(model.tickets) <= last)

  ticket = session.run(model.take)
  while ticket <= last:
    rows = order.randint(len(data[1]), size=remedy.batch)
    ticket, clocks, _ = session.run(model.steps[remedy.update], {
      model.images: data[0][rows], model.digits: data[1][rows], model.rate: remedy.rate,
      model.pause: pause})
    if remedy.max_lead and view_clocks(clocks).lead(index) >= remedy.max_lead:
      wait_while(is_ahead)


def try_remedy(session, model, index, remedy, data, test_data):
  """Trains with each seed; the chief prints a line."""
  last = FLAGS.minibatches * BATCH // remedy.batch
  pause = FLAGS.pause_ms / 1000 * (5 if index == remedy.workers - 1 > 0 else 1)
  losses, seconds, ages, dropped = [], [], 0, 0
  for seed in range(FLAGS.seeds):
    model.barrier.wait(session, timeout=LIMIT)
    if index == 0:
      session.run(model.init, {model.seed: seed})
    model.barrier.wait(session, timeout=LIMIT)
    began = time.perf_counter()
    if index < remedy.workers:
      train(session, model, index, remedy, seed, pause, data, last)
    model.barrier.wait(session, timeout=LIMIT)
    seconds.append(time.perf_counter() - began)
    if index == 0:
      loss, age_sum, updates = session.run(
        [model.loss, model.ages, model.step], dict(zip([model.images, model.digits], test_data)))
      losses.append(loss)
      ages, dropped = ages + age_sum, dropped + last - updates
  if index == 0:
    print("%-29s loss %7.3f (%.3f to %.3f)  %4.1f s  age %.1f  %2.0f %% dropped" % (
      remedy.name, np.median(losses), min(losses), max(losses), np.median(seconds),
      ages / last / FLAGS.seeds, 100 * dropped / last / FLAGS.seeds), flush=True)


def main(_):
  """Serves as the ps, or works."""
  hosts, index = FLAGS.hosts or find_free_addresses(5), FLAGS.task_index
  if not FLAGS.job_name:
    tasks = [("worker", index) for index in range(4)] + [("ps", 0)]
    return run_together(lambda: app.run(main), *[sys.argv[1:] + [
      "--hosts=" + ",".join(hosts), "--job_name=" + job, "--task_index=%d" % index]
      for job, index in tasks])
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, FLAGS.job_name, index)
  if FLAGS.job_name == "ps":
    server.join()
    return
  data, test_data = handwritten_digits.read_to_feed()
  with tf.device(tf1ps.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)):
    model = stale_updates.Model(index, len(hosts) - 1)
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
    for remedy in REMEDIES:
      try_remedy(session, model, index, remedy, data, test_data)


if __name__ == "__main__":
  app.run(main)
