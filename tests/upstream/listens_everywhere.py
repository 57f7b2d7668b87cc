"""A server for "localhost:PORT" listens on every interface of its machine.

Expected: it listens on the address that it was given.
"""
import tensorflow.compat.v1 as tf
from helper import address, leave, ready

ready()
own = address()
server = tf.train.Server({"ps": [own]}, "ps", 0)
port = "%04X" % int(own.rpartition(":")[2])
found = set()
for path in ("/proc/net/tcp", "/proc/net/tcp6"):
  with open(path) as lines:
    for line in list(lines)[1:]:
      local, state = line.split()[1], line.split()[3]
      if local.endswith(":" + port) and state == "0A":  # it listens
        found.add(local.partition(":")[0])
leave("every interface" if {"0" * 8, "0" * 32} & found else "its own address")
