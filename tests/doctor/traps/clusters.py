"""Clusters that cannot work, servers that die, and sessions that refuse what they get."""
import argparse
import os
import sys

import tensorflow as tf

twice = tf.train.ClusterSpec({"ps": ["a:2222"], "worker": ["b:2222", "b:2222"]})  # trap: wrong-cluster-spec
text = tf.train.ClusterSpec({"ps": "a:2222"})  # trap: wrong-cluster-spec
empty = tf.train.ClusterSpec({"ps": [], "worker": ["b:2222"]})  # trap: wrong-cluster-spec
negative = tf.train.ClusterSpec({"worker": {-1: "b:2222"}})  # trap: wrong-cluster-spec
no_port = tf.train.ClusterSpec({"worker": ["b"]})  # trap: wrong-cluster-spec
url = tf.train.ClusterSpec({"worker": ["http://b:2222"]})  # trap: wrong-cluster-spec
flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "a:2222,b:2222", "")
flag = tf.train.ClusterSpec({"ps": flags.FLAGS.ps_hosts})  # trap: wrong-cluster-spec
high = tf.train.Server({"worker": ["b:99999"]}, "worker", 0)  # trap: wrong-cluster-spec
dead = tf.ConfigProto(inter_op_parallelism_threads=-1)  # trap: negative-threads

parser = argparse.ArgumentParser()
parser.add_argument("--task_index", default="0")
args = parser.parse_args()
first = tf.train.Server(twice, "worker", args.task_index)  # trap: task-index-is-text
second = tf.train.Server(twice, "worker", sys.argv[1])  # trap: task-index-is-text
third = tf.train.Server(twice, "worker", os.environ.get("INDEX", "0"))  # trap: task-index-is-text

update = tf.train.AdamOptimizer().minimize(tf.square(tf.get_variable("w", [])))
with tf.train.MonitoredTrainingSession(checkpoint_dir="/data/model") as session:  # trap: session-without-global-step
  session.run_step_fn(lambda context: context.session.run(update))  # trap: step-function-argument
