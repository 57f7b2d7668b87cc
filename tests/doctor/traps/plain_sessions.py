"""Plain sessions: the chief initialises, and nobody starts or ends anything."""
import sys
import threading
import time

import tensorflow as tf

job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
server = tf.train.Server({"ps": hosts[:1], "worker": hosts[1:]}, job, index)


def done_queue():
  with tf.device("/job:ps/task:0"):
    return tf.FIFOQueue(10, tf.int32, shared_name="done")


if job == "ps":
  dequeue = done_queue().dequeue()  # trap: dequeue-without-limit
  session = tf.Session(server.target)  # trap: session-without-limit
  for _ in hosts[1:]:
    session.run(dequeue)
  sys.exit()

with tf.device("/job:ps/task:0"):
  w = tf.get_variable("w", [1, 1])
with tf.device("/job:worker/task:%d" % index):
  names = tf.train.string_input_producer(["a.csv"], num_epochs=1)  # trap: epochs-not-initialised, queue-runners-not-started
  _, line = tf.TextLineReader().read(names)
  batch = tf.train.shuffle_batch([line], 8, capacity=10, min_after_dequeue=20)  # trap: queue-runners-not-started, queue-capacity, batch-drops-tail
  iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(3))  # trap: iterator-not-initialised
  first = iterator.get_next()
  second = iterator.get_next()  # trap: second-get-next
missing = tf.report_uninitialized_variables()
report = done_queue().enqueue(index)


def evaluate():
  with tf.Session(server.target) as session:  # trap: session-without-limit, session-in-thread
    print(session.run(batch))


with tf.Session(server.target) as session:  # trap: session-without-limit
  while len(session.run(missing)) > 0:  # trap: wait-without-limit
    time.sleep(1)
  threading.Thread(target=evaluate).start()
  session.run([batch, first, second])
  session.run(report)
