"""Saver, Scaffold and MonitoredTrainingSession, and three calls that such a session does not serve.

Example N5.
Mechanism: MonitoredTrainingSession makes a Scaffold with a Saver, starts queue runners, restores or
initialises the variables, and saves them. It differs from a plain session in three calls:
1. It is no default session: `get_default_session()` returns None within its block, so `t.eval()`
   fails.
2. saver.save refuses it with a TypeError. Use `run_step_fn`: its function gets the session inside.
   The function's argument must be called step_context. Use a Saver of your own there. The Saver of
   the scaffold would count the file among its own checkpoints, and delete an older one.
3. start_queue_runners accepts it, returns [] and does nothing, because the session has started the
   runners.
A Scaffold replaces parts of the default, such as the Saver: here it keeps one checkpoint only.
Toolkit: bare TensorFlow; tf1ps.MonitoredTrainingSession has the same limits (docs/drop_in.md).

    $ python examples/notes/monitored_session_limits.py
    default session: None
    saver.save: TypeError
    start_queue_runners: []
    run_step_fn: saved by_hand-3
    queue runners run: [0, 1, 2]
    checkpoints kept by the scaffold's saver: ['model.ckpt-3']
    tf1ps: restored at step 3, default session None, saver.save: TypeError
"""

import os
import sys
import tempfile

import tensorflow.compat.v1 as tf

import tf1ps


def type_of_error(function, *args):
  """Returns the name of the error that a call raises."""
  try:
    function(*args)
  except Exception as error:
    return type(error).__name__
  return "no error"


def build():
  """A counter of steps and a queue that a runner fills; returns both, and two savers."""
  train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
  numbers = tf.train.range_input_producer(3, shuffle=False).dequeue()
  # A session makes its graph final: savers are made before.
  return train_op, numbers, tf.train.Saver(max_to_keep=1), tf.train.Saver()


def limits(folder):
  """Three steps in TensorFlow's session, and the limits."""
  train_op, numbers, saver, by_hand = build()
  with tf.train.MonitoredTrainingSession(
      checkpoint_dir=folder, scaffold=tf.train.Scaffold(saver=saver), save_checkpoint_secs=None,
      save_checkpoint_steps=1, save_summaries_steps=None, log_step_count_steps=None) as session:
    found = [int(session.run([numbers, train_op])[0]) for _ in range(3)]
    path = os.path.join(folder, "by_hand")
    print("default session:", tf.get_default_session())
    print("saver.save:", type_of_error(saver.save, session, path))
    print("start_queue_runners:", tf.train.start_queue_runners(session))
    saved = session.run_step_fn(lambda step_context: by_hand.save(
      step_context.session, path, global_step=3, latest_filename="by_hand"))
    print("run_step_fn: saved", os.path.basename(saved))
  print("queue runners run:", found)


def show(folder):
  """Shows the limits, then restores with tf1ps' session."""
  tf.disable_v2_behavior()
  with tf.Graph().as_default():
    limits(folder)
  kept = tf.train.get_checkpoint_state(folder).all_model_checkpoint_paths
  print("checkpoints kept by the scaffold's saver:", [os.path.basename(path) for path in kept])
  with tf.Graph().as_default():
    _, _, saver, _ = build()
    with tf1ps.MonitoredTrainingSession(checkpoint_dir=folder) as session:
      print("tf1ps: restored at step %d, default session %s, saver.save: %s" % (
        session.run(tf.train.get_global_step()), tf.get_default_session(),
        type_of_error(saver.save, session, folder)))


def main():
  """Uses the folder that is given, or a temporary one."""
  if len(sys.argv) == 1:  # in a folder that is removed afterwards
    with tempfile.TemporaryDirectory() as folder:
      return show(folder)
  return show(sys.argv[1])


if __name__ == "__main__":
  main()
