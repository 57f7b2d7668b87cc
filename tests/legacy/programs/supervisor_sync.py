"""A line is fitted by synchronous replicas: Supervisor, the chief's queue runner, init tokens."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_string("checkpoint_dir", "./checkpoint/", "Where the model goes")
tf.app.flags.DEFINE_integer("steps_to_validate", 20, "Steps between two lines of output")
tf.app.flags.DEFINE_integer("max_steps", 100, "Updates to make")
FLAGS = tf.app.flags.FLAGS


def main(_):
  ps_hosts = FLAGS.ps_hosts.split(",")
  worker_hosts = FLAGS.worker_hosts.split(",")
  cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

  if FLAGS.job_name == "ps":
    server.join()
  elif FLAGS.job_name == "worker":
    is_chief = FLAGS.task_index == 0
    with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
      global_step = tf.Variable(0, name="global_step", trainable=False)
      inputs = tf.placeholder("float")
      label = tf.placeholder("float")
      weight = tf.get_variable("weight", [1], tf.float32, initializer=tf.zeros_initializer())
      bias = tf.get_variable("bias", [1], tf.float32, initializer=tf.zeros_initializer())
      pred = tf.multiply(inputs, weight) + bias
      loss_value = tf.reduce_mean(tf.square(label - pred))

      optimizer = tf.train.GradientDescentOptimizer(0.1)
      grads_and_vars = optimizer.compute_gradients(loss_value)
      rep_op = tf.train.SyncReplicasOptimizer(
          optimizer, replicas_to_aggregate=len(worker_hosts),
          total_num_replicas=len(worker_hosts), use_locking=True)
      train_op = rep_op.apply_gradients(grads_and_vars, global_step=global_step)
      init_token_op = rep_op.get_init_tokens_op()
      chief_queue_runner = rep_op.get_chief_queue_runner()
      if is_chief:
        local_init_op = rep_op.chief_init_op
      else:
        local_init_op = rep_op.local_step_init_op
      ready_for_local_init_op = rep_op.ready_for_local_init_op
      init_op = tf.global_variables_initializer()
      saver = tf.train.Saver()
      tf.summary.scalar("cost", loss_value)
      summary_op = tf.summary.merge_all()

    sv = tf.train.Supervisor(
        is_chief=is_chief, logdir=FLAGS.checkpoint_dir, init_op=init_op,
        local_init_op=local_init_op, ready_for_local_init_op=ready_for_local_init_op,
        summary_op=None, saver=saver, global_step=global_step, save_model_secs=60)
    with sv.prepare_or_wait_for_session(server.target) as sess:
      if is_chief:
        sv.start_queue_runners(sess, [chief_queue_runner])
        sess.run(init_token_op)
      step = 0
      local_step = 0
      while not sv.should_stop() and step < FLAGS.max_steps:
        train_x = np.random.randn(16)
        train_y = 2 * train_x + 10 + 0.1 * np.random.randn(16)
        _, loss_v, step = sess.run([train_op, loss_value, global_step],
                                   feed_dict={inputs: train_x, label: train_y})
        local_step += 1
        if local_step % FLAGS.steps_to_validate == 0:
          w, b = sess.run([weight, bias])
          print("step: %d, weight: %f, bias: %f, loss: %f" % (step, w[0], b[0], loss_v))
          if is_chief:
            sv.summary_computed(sess, sess.run(summary_op, {inputs: train_x, label: train_y}))
      print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))
      print("done")


if __name__ == "__main__":
  tf.app.run()
