"""A step by hand with clipped gradients, moving averages, hooks: three parts of many trainers.

Example E11.
Mechanism: each of the three has a graph of its own.
1. An optimizer's `minimize` makes two calls. compute_gradients returns pairs of a gradient and its
   variable, and apply_gradients takes such pairs. Between them you may change the gradients.
   clip_by_global_norm takes all gradients as one vector: [3, 0] and [0, 4] together have the norm
   5, which it returns, too. Clipped to 1, each is divided by 5. A norm below the limit changes
   nothing. A step of rate 1 then moves a and b by the clipped gradients.
2. A moving average of 0.5 over w = 1, 2, 3. It begins with the variable's initial value, here 0:
   0.5 * 0 + 0.5 * 1 = 0.5, then 1.25, then 2.125.
3. The order in which a session calls its hooks: chief-only hooks come before the others. The calls
   of `end` have that order, too. A hook's before_run returns tensors to fetch in the same run, and
   after_run gets their values in run_values.

Toolkit: bare TensorFlow. tf1ps.MonitoredTrainingSession calls hooks in the same order. The argument
clip_norm of tf1ps' builders clips the *mean* gradient of all replicas
(docs/replication.md#in-graph-by-hand and docs/replication.md#synchronous-updates).

    $ python examples/programs/hooks_clipping_averages.py
    clipped: [[0.6, 0.0], [0.0, 0.8]] norm 5.0
    after the step: a [2.4, 0.0] b [0.0, 3.2]
    averages of w: [0.5, 1.25, 2.125] of ['w']
    chief.begin
    other.begin
    chief.after_create_session
    other.after_create_session
    chief.before_run
    other.before_run
    chief.after_run saw w = 1.0
    other.after_run saw w = 1.0
    chief.before_run
    other.before_run
    chief.after_run saw w = 2.0
    other.after_run saw w = 2.0
    chief.end
    other.end
"""

import tensorflow.compat.v1 as tf


class Recorder(tf.train.SessionRunHook):
  """Prints each call of a hook."""

  def __init__(self, name, fetch):
    self._name = name
    self._fetch = fetch

  def begin(self):
    """The graph may still be changed."""
    print(self._name + ".begin")

  def after_create_session(self, session, coord):
    """The graph is final, the variables have values. Comes again after a recovery."""
    print(self._name + ".after_create_session")

  def before_run(self, run_context):
    """The run also fetches the tensors that this returns."""
    print(self._name + ".before_run")
    return tf.train.SessionRunArgs(self._fetch)

  def after_run(self, run_context, run_values):
    """Not called if the run has failed."""
    print("%s.after_run saw w = %s" % (self._name, float(run_values.results)))

  def end(self, session):
    """Not called if an error ended the block."""
    print(self._name + ".end")


def numbers(values):
  """The values of an array as rounded numbers of Python, which print alike everywhere."""
  return [round(float(value), 6) for value in values]


def compute_clip_apply():
  """Makes one step by hand: the gradients of (|a|^2 + |b|^2) / 2 are a and b themselves."""
  a = tf.get_variable("a", initializer=[3.0, 0.0])
  b = tf.get_variable("b", initializer=[0.0, 4.0])
  loss = tf.nn.l2_loss(a) + tf.nn.l2_loss(b)
  optimizer = tf.train.GradientDescentOptimizer(1.0)
  gradients, variables = zip(*optimizer.compute_gradients(loss))
  clipped, norm = tf.clip_by_global_norm(gradients, 1.0)
  step = optimizer.apply_gradients(zip(clipped, variables))
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    of_a, of_b, total = session.run(clipped + [norm])  # before the step: a run does not order them
    print("clipped:", [numbers(of_a), numbers(of_b)], "norm", float(total))
    session.run(step)
    print("after the step: a", numbers(session.run(a)), "b", numbers(session.run(b)))


def average():
  """Averages a variable that takes the values 1, 2, 3."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
  raised = tf.assign_add(w, 1.0)
  averages = tf.train.ExponentialMovingAverage(0.5)
  with tf.control_dependencies([raised]):
    update = averages.apply([w])
  found = []
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(3):
      session.run(update)
      found.append(float(session.run(averages.average(w))))
  print("averages of w:", found, "of", [v.op.name for v in tf.moving_average_variables()])


def call_hooks():
  """Makes two steps with two hooks."""
  tf.train.get_or_create_global_step()
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
  raised = tf.assign_add(w, 1.0)
  with tf.train.MonitoredTrainingSession(
      hooks=[Recorder("other", raised)], chief_only_hooks=[Recorder("chief", raised)],
      log_step_count_steps=None) as session:
    for _ in range(2):
      session.run(raised)


def main():
  """Shows the three, each in a graph of its own."""
  tf.disable_v2_behavior()
  for show in (compute_clip_apply, average, call_hooks):
    with tf.Graph().as_default():
      show()


if __name__ == "__main__":
  main()
