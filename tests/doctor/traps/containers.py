"""Containers that hold nothing, and resets that hit others."""
import tensorflow as tf

TARGET = "grpc://10.0.0.1:2222"

graph = tf.Graph()
with tf.container("jobs/a"):  # trap: container-before-graph
  with graph.as_default():
    v = tf.Variable(1.0)
with tf.container("my_problem_1"):  # trap: container-name
  w = tf.Variable(1.0)
with tf.Session(TARGET) as session:
  with tf.container("jobs/b"):  # trap: container-round-run
    session.run(w.initializer)
  with tf.variable_scope("c"):  # trap: container-round-run
    print(session.run(w))

tf.Session.reset(TARGET)  # trap: reset-clears-all, reset-breaks-sessions
tf.Session.reset(TARGET, ["localhost"])  # trap: reset-clears-nothing, reset-breaks-sessions
