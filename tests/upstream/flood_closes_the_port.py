"""After a flood of connections that took all file descriptors a server accepts nobody any more.

Expected: it answers when the connections have gone.
"""
import contextlib
import os
import resource
import socket
import subprocess
import sys
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

FLOOD = """
import socket, sys
sys.stdin.readline()
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) for _ in range(200)]
print("open", flush=True)
sys.stdin.readline()
"""


def answers(port, limit=2):
  """Whether the server begins HTTP/2, as it does on each connection."""
  with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), limit) as client:
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    return bool(client.recv(1))


ready()
own = address()
port = int(own.split(":")[1])
stranger = subprocess.Popen([sys.executable, "-c", FLOOD, str(port)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)
server = tf.train.Server({"ps": [own]}, "ps", 0)
assert answers(port, 20)
limit = max(map(int, os.listdir("/proc/self/fd"))) + 100
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
stranger.stdin.write(b"\n")
stranger.stdin.flush()
stranger.stdout.readline()
time.sleep(2)
stranger.kill()
stranger.wait()
until = time.monotonic() + 20
while not answers(port) and time.monotonic() < until:
  time.sleep(0.2)
leave("it answers" if answers(port) else "it answers nobody for 20 s")
