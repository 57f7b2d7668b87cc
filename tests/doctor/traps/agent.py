"""An agent's worker and its ps, with a step of its own and averages of its losses."""
import argparse
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--job", type=str)
parser.add_argument("--task", type=int)
args = parser.parse_args()


def sleep():
  while True:  # trap: ps-loop-never-ends
    time.sleep(1000)


def train(server, cluster):
  with tf.device(tf.train.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % args.task)):
    step = tf.get_variable(  # trap: global-step-of-floats
      "global_step", [], initializer=tf.constant_initializer(0), trainable=False)
    w = tf.get_variable("w", [4, 1], regularizer=tf.nn.l2_loss)
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    loss = tf.reduce_mean(tf.square(w)) + tf.add_n(losses)
    averages = tf.train.ExponentialMovingAverage(0.9)
    update = averages.apply(losses + [loss])  # trap: average-of-regularization-losses
    with tf.control_dependencies([update]):
      train_op = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
  config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % args.task])
  session = tf.train.MonitoredTrainingSession(  # trap: session-without-limit, chief-restart-goes-back, worker-sleeps-30-seconds
    server.target, is_chief=args.task == 0, config=config,
    hooks=[tf.train.StopAtStepHook(last_step=1000)])
  while not session.should_stop():
    session.run(train_op)
    if args.task == 0:
      print(session.run(loss))  # trap: run-after-should-stop
  session.run(step)  # trap: run-after-should-stop


def main():
  cluster = tf.train.ClusterSpec({"ps": ["a:2222"], "worker": ["b:2222", "c:2222"]})
  server = tf.train.Server(cluster, args.job, args.task)
  if args.job == "worker":
    train(server, cluster)
  else:
    sleep()


main()
