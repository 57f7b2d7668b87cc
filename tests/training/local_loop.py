"""A small training loop in this process, for the tests of hooks: real sessions, counted.

The model: `x` begins at 0; a step adds 1 to it and `steps_by` to the global step, which stands for
the steps of other workers. The loss is the value of x before the step.
"""
from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import global_step
from tf1ps.training import execution
from tf1ps.training.counts import Counts
from tf1ps.training.step import Step


class CountingSession(tf.Session):
  """A session that counts its runs of the global step alone, which is what a question is."""

  questions = 0

  def run(self, fetches, *args, **kwargs):
    if fetches is tf.train.get_global_step(self.graph):
      self.questions += 1
    return super().run(fetches, *args, **kwargs)


class Model(object):
  """The model, built in the default graph."""

  def __init__(self, steps_by=1):
    self.global_step = tf.train.get_or_create_global_step()
    self.x = tf.get_variable("x", [], initializer=tf.zeros_initializer(), use_resource=True)
    self.loss = tf.identity(self.x.read_value(), name="loss")
    with tf.control_dependencies([self.loss]):
      self.train_op = tf.group(
        self.x.assign_add(1.0), self.global_step.assign_add(steps_by))
    tf.add_to_collection(tf.GraphKeys.TRAIN_OP, self.train_op)


class Creator(tf.train.SessionCreator):
  """Creates counted sessions; each begins with the initial values."""

  def __init__(self, scaffold):
    self.session = None
    self._scaffold = scaffold

  def create_session(self):
    self._scaffold.finalize()
    self.session = CountingSession(graph=tf.get_default_graph())
    self.session.run(self._scaffold.init_op)
    return self.session


def run(hooks, max_steps=10**6, scaffold=None):
  """Runs stock's MonitoredSession with these hooks over the default graph's model.

  Returns:
    The steps that were made and the questions that were asked, in the last session.
  """
  creator = Creator(scaffold or tf.train.Scaffold())
  steps = 0
  with tf.train.MonitoredSession(creator, hooks) as session:
    while steps < max_steps and not session.should_stop():
      session.run(tf.get_collection(tf.GraphKeys.TRAIN_OP)[0])
      steps += 1
    questions = creator.session.questions
  return steps, questions


def counts(examples=1, loss=0.0, **fields):
  """The ledger of a loop whose steps have batches of so many examples."""
  return Counts(global_step.GlobalStepTracker(), execution.Fetches(Step(
    tf.no_op(), tf.convert_to_tensor(loss), tf.convert_to_tensor(examples), **fields)))
