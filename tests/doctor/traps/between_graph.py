"""Replicas that find neither each other's state nor the end."""
import os
import signal
import tempfile

import tensorflow as tf

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"  # trap: environment-after-import
os.environ["GRPC_FAIL_FAST"] = "true"  # trap: grpc-fail-fast
os.environ["TF_GRPC_DEFAULT_OPTIONS"] = "grpc.http2.max_pings_without_data=0"  # trap: grpc-pings-without-data

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "")
flags.DEFINE_string("worker_hosts", "", "")
flags.DEFINE_string("job_name", "", "")
flags.DEFINE_integer("task_index", 0, "")
FLAGS = flags.FLAGS


def model(x):
  with tf.device(lambda op: "/cpu:0" if op.type == "Variable" else "/gpu:0"):  # trap: op-type-variable
    w = tf.get_variable("w", [10, 1])
  return tf.matmul(x, w)


def main(_):
  signal.signal(signal.SIGINT, lambda *_: print("asked to end"))  # trap: signal-handler-never-runs
  cluster = tf.train.ClusterSpec({
    "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.distribute.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()  # trap: server-join-never-ends
  is_chief = FLAGS.task_index == 0
  global_step = tf.train.get_or_create_global_step()  # trap: unpinned-global-step
  rate = tf.Variable(0.1, name="rate")  # trap: unpinned-variable
  scale = tf.layers.dense(tf.ones([1, 1]), 1)  # trap: unpinned-variable
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    names = tf.train.string_input_producer(["a.csv"], num_epochs=2)  # trap: local-variable-on-ps
    _, line = tf.TextLineReader().read(names)
    fields = tf.decode_csv(line, [[0.0]] * 10 + [[0]])
    x, y = tf.train.batch([tf.stack(fields[:-1]), fields[-1]], 32)  # trap: batch-drops-tail
    net = tf.keras.layers.Dense(10)(x)  # trap: keras-layer-without-name
    logits = model(net) * scale
    loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
    accuracy = tf.metrics.accuracy(y, tf.argmax(logits, 1))  # trap: local-variable-on-ps
    seen = tf.Variable(0, name="seen", collections=[tf.GraphKeys.LOCAL_VARIABLES])  # trap: local-variable-on-ps
    done = tf.queue.FIFOQueue(2, tf.int32, shared_name="done")  # trap: shared-queue-not-shared
    with tf.device("/job:ps/task:0"):
      tokens = tf.FIFOQueue(2, tf.int32)  # trap: private-queue-on-ps
    optimizer = tf.train.AdagradOptimizer(rate, use_locking=False)  # trap: updates-without-lock
    train_op = optimizer.minimize(loss)  # trap: global-step-stands-still
  writer = tf.summary.FileWriter("/data/logs")  # trap: summary-writer-on-each-worker
  hooks = [tf.train.StopAtStepHook(last_step=1000)]
  saver = tf.train.Saver()
  threads = tf.ConfigProto(intra_op_parallelism_threads=2)  # trap: threads-of-remote-session
  with tf.train.MonitoredTrainingSession(  # trap: session-without-limit, worker-sleeps-30-seconds, chief-restart-goes-back, checkpoints-in-new-folder, checkpoint-secs-and-steps, wait-shorter-than-sleep
      server.target, is_chief, checkpoint_dir=tempfile.mkdtemp(), hooks=hooks, config=threads,
      save_checkpoint_secs=60, save_checkpoint_steps=100, max_wait_secs=10) as session:
    while not session.should_stop():
      try:
        session.run([train_op, tokens.enqueue(1), seen])
      except tf.errors.UnavailableError as error:
        if not str(error).startswith("Socket closed"):  # trap: error-text-begins
          raise
    saver.save(session, "/data/last")  # trap: saver-takes-no-monitored-session
    session.run(done.enqueue(FLAGS.task_index))  # trap: run-after-should-stop
    print(session.run([accuracy, global_step]))  # trap: run-after-should-stop
  tf.train.export_meta_graph("/data/graph.meta")  # trap: export-keeps-devices
  writer.close()
  del server  # trap: server-cannot-be-stopped


if __name__ == "__main__":
  tf.app.run()
