"""Breaks one mechanism of tf1ps in a worker, so that a test can see its validator fail.

Each of these is a defect that a version of tf1ps could have:

  token       a synchronous round sends no token to worker 2
  range       a leased range of the data is called done, and never read
  checkpoint  one ps gets older values than the other when a checkpoint is restored
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tools.chaos import program

BREAKS = ("token", "range", "checkpoint")
_ROUND = 8  # the first round without a token for worker 2
_RANGE = 3
_LESS = 3.0  # updates that the torn half of a checkpoint lacks


def apply(names) -> None:
  """Breaks what is named, in this process."""
  for name in names:
    {"token": _drop_tokens, "range": _forget_range, "checkpoint": _tear_restore}[name]()


def _drop_tokens():
  from tf1ps.replication import rounds

  put = rounds._SharedState.put_tokens

  def put_without(self, to, token):
    keeps = tf.cast(tf.convert_to_tensor(token[0]) < _ROUND, tf.int64)
    is_last = tf.constant([0] * (program.NUM_WORKERS - 1) + [1], tf.int64)
    return put(self, to * (1 - is_last * (1 - keeps)), token)

  rounds._SharedState.put_tokens = put_without
  rounds.Rounds.resend = lambda self: tf.no_op()


def _forget_range():
  from tf1ps.pipeline import lease_table

  grant = lease_table.LeaseState.grant

  def grant_another(self, owner, *args):
    lease = grant(self, owner, *args)
    if lease == _RANGE:
      self.done(owner, [lease])
      lease = grant(self, owner, *args)
    return lease

  lease_table.LeaseState.grant = grant_another


def _tear_restore():
  begun = program.Recorder.on_state_begun

  def begun_torn(self, session, checkpoint):
    begun(self, session, checkpoint)
    if checkpoint is not None:
      with session.graph.as_default():
        session.run(self.tear)

  def begin_with(self, begin=program.Recorder.begin):
    begin(self)
    counts = [each for each in tf.trainable_variables() if each.op.name == "counts_1"]
    self.tear = [each.assign_sub(tf.fill(each.shape, _LESS)) for each in counts]

  program.Recorder.begin = begin_with
  program.Recorder.on_state_begun = begun_torn
