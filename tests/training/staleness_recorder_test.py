from __future__ import annotations

import glob

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.checkpoint import global_step
from tf1ps.replication import staleness
from tf1ps.training import staleness_recorder
from tf1ps.training.counts import ExampleCounter


class Model(object):
  """Steps between whose reading and update others make as many as they are told."""

  def __init__(self, max_staleness=None):
    step = tf.train.get_or_create_global_step()
    self.others = tf.placeholder(tf.int64, [])
    begun = staleness.begin_gradient_age(step)
    with tf.control_dependencies([begun]):
      between = tf.assign_add(step, self.others)
    with tf.control_dependencies([between]):
      self.train_op = tf.assign_add(step, 1).op
    age = staleness.gradient_age(step, begun, self.train_op)
    self.taken = None if max_staleness is None else age <= max_staleness
    self.table = staleness.AgeTable(step, 0)
    self.counted = self.table.count(age, max_staleness)
    self.tracker = global_step.GlobalStepTracker()
    self.tracker.add_listener(lambda *_: self.tracker.ask_within(1))  # asks after each step

  def recorder(self, *args, **kwargs):
    self.counts = local_loop.counts(1, counted=self.counted, taken=self.taken)
    self.counts.tracker = self.tracker
    return staleness_recorder.StalenessRecorder([self.table], self.counts, *args, **kwargs)

  def run(self, ages, hooks, target=""):
    creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(), target)
    with tf.train.MonitoredSession(creator, [self.tracker, *hooks]) as session:
      for age in ages:
        session.run(self.train_op, {self.others: age})


class Breaks(tf.train.SessionRunHook):
  """Has the session break after one of the steps, which the loop then makes again."""

  def __init__(self, step):
    self._left = step

  def after_run(self, run_context, run_values):
    self._left -= 1
    if self._left == 0:
      raise tf.errors.AbortedError(None, None, "the session broke")


def test_ages_are_counted_and_written(tmp_path):
  with tf.Graph().as_default():
    model = Model()
    recorder = model.recorder(str(tmp_path), every_secs=1e9)
    model.run([2, 0, 2, 7, 2], [recorder])
  assert dict(recorder.ages.counts) == {0: 1, 2: 3, 7: 1}
  assert str(recorder.ages) == "staleness 2.6 (7 at most)"
  tf.summary.FileWriterCache.get(str(tmp_path)).close()
  tf.summary.FileWriterCache.clear()
  path, = glob.glob(str(tmp_path / "events*"))
  found = [value.histo.num for event in tf.train.summary_iterator(path)
           for value in event.summary.value if value.tag == staleness_recorder.TAG]
  assert found == [1, 5]  # after the first step, and at the end


def test_ages_of_dropped_gradients_do_not_count():
  with tf.Graph().as_default():
    model = Model(max_staleness=2)
    recorder = model.recorder()
    model.run([0, 5, 2, 3, 0], [recorder, ExampleCounter(model.counts)])
  assert dict(recorder.ages.counts) == {0: 2, 2: 1} and model.counts.late_batches == 2
  assert (recorder.ages.total, recorder.ages.highest) == (2, 2)


@pytest.mark.parametrize("ps_lives", [True, False])
def test_new_sessions_go_on_counting(ps_lives):
  with tf.Graph().as_default() as graph, graph.container("recorder"):
    model = Model()
    # A session of its own has no resources of the one before it, like a ps that comes back.
    target = tf.train.Server.create_local_server().target if ps_lives else ""
    recorder = model.recorder(every_secs=1e9 if ps_lives else 0.0)
    model.run([4, 1, 9, 1, 0], [recorder, Breaks(3), Breaks(4)], target)
  # The third step was made twice, and so was the fourth.
  assert dict(recorder.ages.counts) == {0: 1, 1: 3, 4: 1, 9: 2}
  assert (recorder.ages.total, recorder.ages.highest) == (25, 9)


def test_a_process_that_comes_back_begins_anew():
  target = tf.train.Server.create_local_server().target
  for ages in ([8, 8], [1]):
    with tf.Graph().as_default() as graph, graph.container("again"):
      model = Model()
      recorder = model.recorder()
      model.run(ages, [recorder], target)
  assert dict(recorder.ages.counts) == {1: 1}


def test_a_last_reading_that_fails_keeps_what_is_known():
  with tf.Graph().as_default() as graph:
    model = Model()
    recorder = model.recorder(every_secs=0.0)
    model.run([3, 3], [recorder])
    session = tf.Session(graph=graph)  # where there is no table
    recorder.leave(session)
    session.close()
    recorder.end(session)
  assert dict(recorder.ages.counts) == {3: 2}
