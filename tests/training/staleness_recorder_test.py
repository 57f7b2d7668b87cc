from __future__ import annotations

import glob

import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.training import global_step, staleness_recorder


def test_ages_come_along_and_are_written(tmp_path):
  with tf.Graph().as_default():
    local_loop.Model()
    tracker = global_step.GlobalStepTracker()
    age = tf.cast(tf.train.get_global_step().read_value(), tf.int64) * 0 + 2
    recorder = staleness_recorder.StalenessRecorder(age, tracker, str(tmp_path), every_secs=1e9)
    local_loop.run([tracker, recorder], max_steps=5)
  assert dict(recorder.ages.counts) == {2: 5}
  tf.summary.FileWriterCache.get(str(tmp_path)).close()
  tf.summary.FileWriterCache.clear()
  path, = glob.glob(str(tmp_path / "events*"))
  found = [value.histo.num for event in tf.train.summary_iterator(path)
           for value in event.summary.value if value.tag == staleness_recorder.TAG]
  assert found[-1] == 5


def test_ages_of_dropped_gradients_do_not_count():
  with tf.Graph().as_default():
    age = tf.placeholder_with_default(0, [])
    recorder = staleness_recorder.StalenessRecorder(
      age, global_step.GlobalStepTracker(), taken=age <= 2)
    with tf.train.MonitoredSession(hooks=[recorder]) as session:
      for number in (0, 5, 2, 3, 0):
        session.run(age, {age: number})
  assert dict(recorder.ages.counts) == {0: 2, 2: 1} and recorder.dropped == 2
