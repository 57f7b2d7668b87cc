"""Remedies against a saturated network: the bytes that each saves, and the accuracy that it costs.

Example B42. Section: parallel.
Mechanism: a step sends the parameters to each host, and a gradient back from each. Their size and
their number make the traffic. Four replicas train a network 64-100-100-10 on the digits,
synchronously, so that a seed gives every row the same batches. Each row changes one thing, and the
last row changes several.
What to look for:
- Two ps send as many bytes as one, but through two connections, so the busier one carries less.
- Replicas on one host share the parameters that the host has fetched, and send one gradient.
- Neither of these changes the mathematics. 16 bits, on the wire or as parameters, halve the bytes.
  On the wire alone the update stays in float32. (With float16 parameters a small update may be
  lost.)
- 8 bits, with a scale for each tensor, are for the trained model. The test uses the values that
  come back from them.

The bytes are read off the graph. One of the 360 test images is 0.28 points of accuracy.
The graphs are in replicas_on_hosts.py.
Toolkit: tf1ps counts the bytes (docs/monitoring.md#what-a-step-sends), casts for the wire
(docs/transfer.md), and makes the clones of a host (docs/replication.md#in-graph-by-hand).

    $ python examples/book/less_bandwidth.py
    4 hosts, 1 ps, float32             556800 bytes per step, 556800 at one ps  ...
    2 ps                               556800 bytes per step, 320000 at one ps  ...
    2 hosts of 2 replicas              278400 bytes per step, 278400 at one ps  ...
    1 host of 4 replicas               139200 bytes per step, 139200 at one ps  ...
    bfloat16 on the wire               278400 bytes per step, 278400 at one ps  ...
    float16 on the wire                278400 bytes per step, 278400 at one ps  ...
    float16 parameters                 278400 bytes per step, 278400 at one ps  ...
    2 ps, 1 host, float16 on the wire   69600 bytes per step,  40000 at one ps  ...
    trained, then float32               69600 bytes  ...
    trained, then float16               34800 bytes  ...
    trained, then 8 bits                17412 bytes  ...
    no median accuracy is further than 2 points from the first one: True

With --steps=600 --seeds=3: 600 steps, and the median (smallest to largest) of three seeds.
Bytes of a step, all and at the busier ps, and in the last rows of the trained model; measured on
2 cores, TensorFlow 2.21:

                                        a step  one ps  accuracy                 loss
    4 hosts, 1 ps, float32              556800  556800  96.94 % (96.94 to 98.06)  0.11901
    2 ps                                556800  320000  96.94 % (96.94 to 98.06)  0.11901
    2 hosts of 2 replicas               278400  278400  96.94 % (96.94 to 98.06)  0.11901
    1 host of 4 replicas                139200  139200  96.94 % (96.94 to 98.06)  0.11901
    bfloat16 on the wire                278400  278400  96.94 % (96.94 to 98.06)  0.11908
    float16 on the wire                 278400  278400  96.94 % (96.94 to 98.06)  0.11903
    float16 parameters                  278400  278400  96.94 % (96.94 to 98.06)  0.11883
    2 ps, 1 host, float16 on the wire    69600   40000  96.94 % (96.94 to 98.06)  0.11903
    trained, then float32                69600          96.94 % (96.94 to 98.06)  0.11901
    trained, then float16                34800          96.94 % (96.94 to 98.06)  0.11901
    trained, then 8 bits                 17412          96.94 % (96.94 to 98.06)  0.11881
"""

import pathlib
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from replicas_on_hosts import BATCH, Job, Model

from tf1ps.launch import find_free_addresses
from tf1ps.transfer import report_traffic

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_list("ps_hosts", None, "Two; none: free ones.")
flags.DEFINE_list("worker_hosts", None, "Four; none: free ones.")
flags.DEFINE_integer("steps", 30, "Of each training.")
flags.DEFINE_integer("seeds", 1, "Trainings of each job.")
FLAGS = flags.FLAGS

JOBS = [
  Job("4 hosts, 1 ps, float32"),
  Job("2 ps", ps=2),
  Job("2 hosts of 2 replicas", hosts=2),
  Job("1 host of 4 replicas", hosts=1),
  Job("bfloat16 on the wire", wire="bfloat16"),
  Job("float16 on the wire", wire="float16"),
  Job("float16 parameters", parameters=tf.float16),
  Job("2 ps, 1 host, float16 on the wire", ps=2, hosts=1, wire="float16")]


def in_8_bits(weights):
  """Rounds to 255 steps of one size: returns int8 values, and the size."""
  step = np.float32(np.abs(weights).max() / 127)
  return np.round(weights / step).astype(np.int8), step


def after_training(session, model, data):
  """Returns {name: (bytes of the model, result)} of the trained weights in other types."""
  values = session.run(model.weights)
  found = {"float32": (sum(one.nbytes for one in values), model.test(session, data))}
  for name in "float16", "8 bits":
    if name == "float16":
      sizes = [one.astype(np.float16).nbytes for one in values]
      back = [one.astype(np.float16) for one in values]
    else:
      small = [in_8_bits(one) for one in values]
      sizes = [one.nbytes + step.nbytes for one, step in small]
      back = [one * step for one, step in small]
    for variable, value in zip(model.weights, back):
      variable.load(value.astype(np.float32), session)
    found[name] = sum(sizes), model.test(session, data)
  return found


def say(results):
  """Medians of the accuracy and the loss, with the smallest and the largest."""
  accuracies, losses = zip(*results)
  return "%.2f %% (%.2f to %.2f)  loss %.5f" % (
    np.median(accuracies), min(accuracies), max(accuracies), np.median(losses))


def main(_):
  """Starts all servers here, to need one shell only, and trains each job."""
  tf.disable_v2_behavior()
  tf.enable_resource_variables()
  cluster = {"ps": FLAGS.ps_hosts or find_free_addresses(2),
             "worker": FLAGS.worker_hosts or find_free_addresses(4)}
  servers = [tf.train.Server(cluster, job, index)
             for job in ("worker", "ps") for index in range(len(cluster[job]))]
  data, test_data = handwritten_digits.read_to_feed()
  sizes, results, smaller = {}, {}, []
  for number, job in enumerate(JOBS):
    with tf.Graph().as_default(), tf.container("job%d" % number):
      model = Model(job)
      report = report_traffic(model.step, worker="/job:worker/task:0", batch=BATCH)
      ps = [down.bytes + up.bytes for down, up in report.by_ps.values()]
      sizes[job.name], results[job.name] = (sum(ps), max(ps)), []
      with tf.Session(servers[0].target) as session:
        for seed in range(FLAGS.seeds):
          model.train(session, seed, data, FLAGS.steps)
          results[job.name].append(model.test(session, test_data))
          if number == 0:
            smaller.append(after_training(session, model, test_data))
    print("%-34s %6d bytes per step, %6d at one ps  %s" % (
      (job.name,) + sizes[job.name] + (say(results[job.name]),)), flush=True)
  for name in smaller[0]:
    results["trained, then " + name] = [one[name][1] for one in smaller]
    print("trained, then %-20s %6d bytes  %s" % (
      name, smaller[0][name][0], say(results["trained, then " + name])))
  medians = [np.median([accuracy for accuracy, _ in found]) for found in results.values()]
  print("no median accuracy is further than 2 points from the first one:",
        max(abs(one - medians[0]) for one in medians) <= 2)


if __name__ == "__main__":
  app.run(main)
