"""After a ps has died, `Session.close()` does not return.

Expected: it returns within seconds.
"""
import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready, start_ps, within

tf.disable_eager_execution()
jobs = {"ps": [address()], "worker": [address()]}
ps = start_ps(jobs)
server = tf.train.Server(jobs, "worker", 0)
with tf.device("/job:ps/task:0"):
  w = tf.get_variable("w", initializer=2.0)
with tf.device("/job:worker/task:0"):
  more = w + 1.0
session = tf.Session(server.target)
session.run(w.initializer)
session.run(more)
ps.kill()
ps.wait()
ready()
run = within(15, lambda: session.run(more))
end = "does not come to close" if run == "nothing" else (
  "close does not return" if within(5, session.close) == "nothing" else "close returns")
leave("run: %s; %s" % (name(run), end))
