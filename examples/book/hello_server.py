"""A server of one task in this process, and a session that runs its graph there.

Example B01. Section: devices.
Mechanism: local server.

`create_local_server` starts a server, a cluster of one task on a free port, in the background of
this process. `server.target` is its address, `grpc://...`; a session that is given it sends its
graph there and fetches what comes out, instead of computing in a runtime of its own. Everything
else in distributed TensorFlow is this with more tasks.

A server cannot be stopped: it lasts as long as the process. It listens on every interface of the
machine, and asks nobody who he is (docs/cluster.md tells what can be done about it).

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
