"""A server of one task in this process, and a session that runs its graph there.

Example B01. Section: devices.
Mechanism: local server.

`create_local_server` starts a server, which is a cluster of one task on a free port. The server
runs in the background of this process. `server.target` is its address, `grpc://...`. A session with
this address sends its graph there and fetches the results; it computes nothing itself. All of
distributed TensorFlow is this, with more tasks.

You cannot stop a server: it lasts as long as its process. It listens on every interface of the
machine, and serves everybody who connects (docs/cluster.md says how to limit that).

Toolkit: bare TensorFlow.

    $ python examples/book/hello_server.py
    ...: grpc://localhost:...
    b'Hello distributed TensorFlow!'
"""
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


def main():
  """Starts the server, and runs a constant on it."""
  hello = tf.constant("Hello distributed TensorFlow!")
  server = tf.train.Server.create_local_server()
  job = server.server_def.job_name  # "localhost" on TensorFlow 2, "local" on 1.15
  print("/job:%s/task:%d: %s" % (job, server.server_def.task_index, server.target))
  with tf.Session(server.target) as session:
    print(session.run(hello))


if __name__ == "__main__":
  main()
