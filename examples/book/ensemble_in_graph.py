"""An ensemble in one graph: three networks, a device each, and the mean of their predictions.

Example B34. Section: parallel.
Mechanism: one graph, one client; each network is on a device of its own, the mean on another.
What to look for: the ensemble's answer is numpy's mean of the three answers, to 1e-6. All networks
must answer: a device that stands still delays the whole answer. (In ensemble_queues.py it does
not.) The devices are logical devices of this process. On a cluster write "/job:worker/task:1" and
so on instead; nothing else changes.
Toolkit: bare TensorFlow (docs/replication.md#ensembles).

    $ python examples/book/ensemble_in_graph.py
    network_0 runs on /device:CPU:1
    network_1 runs on /device:CPU:2
    network_2 runs on /device:CPU:3
    the mean has the shape [32, 10] and equals numpy's: True
"""

import numpy as np
import tensorflow.compat.v1 as tf

DEVICES = ["/device:CPU:1", "/device:CPU:2", "/device:CPU:3"]


def network(images):
  """A network with one hidden layer: class probabilities [batch, 10] of images [batch, 64]."""
  hidden = tf.nn.relu(tf.matmul(images, tf.get_variable("hidden", [64, 32])))
  return tf.nn.softmax(tf.matmul(hidden, tf.get_variable("logits", [32, 10])))


def ensemble(images):
  """Builds a network on each device, in a scope of its own; returns their predictions and mean."""
  predictions = []
  for index, device in enumerate(DEVICES):
    with tf.device(device), tf.variable_scope("network_%d" % index):
      predictions.append(network(images))
  return predictions, tf.add_n(predictions) / len(predictions)


def main():
  """Asks the ensemble and its networks about the same images."""
  tf.disable_v2_behavior()
  images = tf.placeholder(tf.float32, [None, 64])
  with tf.device("/device:CPU:0"):
    predictions, mean = ensemble(images)
  with tf.Session(config=tf.ConfigProto(device_count={"CPU": 4})) as session:
    session.run(tf.global_variables_initializer())
    batch = np.random.RandomState(0).rand(32, 64)
    combined, *singles = session.run([mean] + predictions, {images: batch})
  for index, prediction in enumerate(predictions):
    print("network_%d runs on %s" % (index, prediction.device))
  print("the mean has the shape %s and equals numpy's: %s" % (
    list(combined.shape), np.abs(combined - np.mean(singles, 0)).max() < 1e-6))


if __name__ == "__main__":
  main()
