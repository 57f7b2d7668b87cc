"""A server takes the port 99999, and listens on another one.

Expected: an error that names the port.
"""
import tensorflow.compat.v1 as tf
from helper import leave, ready

ready()
try:
  server = tf.train.Server({"ps": ["localhost:99999"]}, "ps", 0)
except Exception as error:
  leave("%s" % type(error).__name__)
leave("no error")
