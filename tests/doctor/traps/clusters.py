"""Clusters that cannot work, and servers that die."""
import tensorflow as tf

twice = tf.train.ClusterSpec({"ps": ["a:2222"], "worker": ["b:2222", "b:2222"]})  # trap: wrong-cluster-spec
text = tf.train.ClusterSpec({"ps": "a:2222"})  # trap: wrong-cluster-spec
empty = tf.train.ClusterSpec({"ps": [], "worker": ["b:2222"]})  # trap: wrong-cluster-spec
negative = tf.train.ClusterSpec({"worker": {-1: "b:2222"}})  # trap: wrong-cluster-spec
no_port = tf.train.ClusterSpec({"worker": ["b"]})  # trap: wrong-cluster-spec
url = tf.train.ClusterSpec({"worker": ["http://b:2222"]})  # trap: wrong-cluster-spec
high = tf.train.Server({"worker": ["b:99999"]}, "worker", 0)  # trap: wrong-cluster-spec
dead = tf.ConfigProto(inter_op_parallelism_threads=-1)  # trap: negative-threads
