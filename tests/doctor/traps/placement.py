"""Setters and filters that say something else than their author means."""
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.enable_resource_variables()
job, index = sys.argv[1], int(sys.argv[2])
cluster = tf.train.ClusterSpec({
  "ps": {1: "10.0.0.1:2222", 4: "10.0.0.2:2222"}, "worker": ["10.0.0.3:2222", "10.0.0.4:2222"]})
server = tf.train.Server(cluster, job, index)
if job == "ps":
  server.join()  # trap: server-join-never-ends

nothing = tf.train.replica_device_setter()  # trap: setter-without-ps, worker-device-without-task
anywhere = tf.train.replica_device_setter(cluster=cluster)  # trap: setter-counts-ps, worker-device-without-task
the_first = tf.train.replica_device_setter(  # trap: setter-counts-ps, worker-device-of-one-task
  cluster=cluster, worker_device="/job:worker/task:0")
with tf.device(the_first), tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)):
  ids = tf.placeholder(tf.int64, [None])
  table = tf.get_variable("table", [1000, 8])
  rows = tf.nn.embedding_lookup(table, ids)  # trap: partitioned-lookup
  wide = tf.get_variable("wide", [1000, 8], partitioner=tf.fixed_size_partitioner(2, axis=1))
  halves = tf.nn.embedding_lookup(wide, ids, partition_strategy="div")  # trap: table-in-columns
losses = []
for i in range(2):
  with tf.device("/job:worker/task:%d" % i):  # trap: filters-hide-device
    losses.append(tf.reduce_sum(rows) + tf.reduce_sum(halves))
with tf.device("/job:evaluator/task:0"):  # trap: filters-hide-device
  total = tf.add_n(losses)

config = tf.ConfigProto(
  device_filters=["/job:ps", "/job:worker/task:%d" % index], operation_timeout_in_ms=5000)
with tf.Session(server.target, config=config) as session:  # trap: session-without-limit
  session.run(tf.global_variables_initializer())  # trap: chief-restart-goes-back
  session.run(total, {ids: [1, 2]})
  print(session.run("global_step:0"))  # trap: fetch-by-name
