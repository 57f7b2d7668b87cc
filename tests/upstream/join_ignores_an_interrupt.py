"""`Server.join()` ignores SIGINT: Control-C ends no ps.

Expected: KeyboardInterrupt.
"""
import os
import signal
import threading

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

server = tf.train.Server({"ps": [address()]}, "ps", 0)
ready()
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
threading.Timer(6.0, leave, ("ignored for 5 s",)).start()
try:
  server.join()
except KeyboardInterrupt:
  leave("KeyboardInterrupt")
