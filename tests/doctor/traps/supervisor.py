"""Synchronous replicas under a Supervisor, whose data end."""
import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps", type=str)
parser.add_argument("--workers", type=str)
parser.add_argument("--job", type=str)
parser.add_argument("--task", type=int)
args = parser.parse_args()

workers = args.workers.split(",")
cluster = tf.train.ClusterSpec({"ps": args.ps.split(","), "worker": workers})
server = tf.train.Server(cluster, args.job, args.task)
if args.job == "ps":
  server.join()  # trap: server-join-never-ends

is_chief = args.task == 0
with tf.device(tf.train.replica_device_setter(
    cluster=cluster, worker_device="/job:worker/task:%d" % args.task)):
  global_step = tf.train.get_or_create_global_step()
  x = tf.placeholder(tf.float32, [None, 4])
  w = tf.get_variable("w", [4, 1])
  loss = tf.reduce_mean(tf.square(tf.matmul(x, w)))
  tf.summary.scalar("loss", loss)
  optimizer = tf.train.SyncReplicasOptimizer(  # trap: sync-uneven-data, sync-ends-with-chief, sync-local-step-not-set
    tf.train.AdamOptimizer(0.1), len(workers), total_num_replicas=len(workers))
  train_op = optimizer.minimize(loss, global_step=global_step)
  runner = optimizer.get_chief_queue_runner()
  tokens = optimizer.get_init_tokens_op()  # trap: sync-tokens-are-shared

sv = tf.train.Supervisor(  # trap: worker-sleeps-30-seconds, summary-needs-feeds, last-steps-not-saved
  is_chief=is_chief, logdir="/data/model", global_step=global_step)
config = tf.ConfigProto(operation_timeout_in_ms=5000)  # trap: operation-timeout-ends-training
with sv.prepare_or_wait_for_session(  # trap: session-without-limit, chief-restart-goes-back, wait-shorter-than-sleep
    server.target, config=config, max_wait_secs=20) as session:
  if is_chief:
    sv.start_queue_runners(session, [runner])
    session.run(tokens)
  try:
    with open("part-%d.csv" % args.task) as file:
      for line in file:
        session.run(train_op, {x: [[float(field) for field in line.split(",")]]})
  except tf.errors.OutOfRangeError:
    print("the data have ended")
