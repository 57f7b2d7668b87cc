from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import bad_records, graph_input, record_copies, record_retry

RECORDS = [b"%d" % n for n in range(16)]


class CountingSession(tf.Session):
  """A session that counts the runs that feed."""

  feeds = 0

  def run(self, fetches, feed_dict=None, *args, **kwargs):
    self.feeds += bool(feed_dict)
    return super().run(fetches, feed_dict, *args, **kwargs)


def retry(bad, policy, shape=(None,)):
  """Runs 16 records, those of `bad` no numbers, and tries again; returns what is enqueued."""
  values = [b"x" if n in bad else record for n, record in enumerate(RECORDS)]
  with tf.Graph().as_default() as graph:
    graph_input.use_bad_records(policy)
    pair = [tf.placeholder_with_default(all_of, shape)
            for all_of in (["f:%d" % n for n in range(16)], values)]
    graph_input.add_record_source(*pair)
    queue = tf.FIFOQueue(20, tf.int32, [[]])
    copy = record_copies.copy(queue.enqueue_many(tf.string_to_number(pair[1], tf.int32)))
    rest = queue.dequeue_up_to(20)
    queue.close(name="close")
    with CountingSession(graph=graph) as session:
      error = None
      try:
        session.run(copy.enqueue)
      except tf.errors.OpError as caught:
        session.feeds = 0
        try:
          record_retry.retry(CountingSession, session, copy, caught)
        except Exception as raised:
          error = raised
      session.run("close")
      try:
        return session.run(rest).tolist(), error, session.feeds
      except tf.errors.OutOfRangeError:
        return [], error, session.feeds


def test_good_ones_stay_in_order_and_one_bad_one_costs_few_runs():
  found, error, runs = retry([11], bad_records.BadRecords("skip", 0.5))
  assert found == [n for n in range(16) if n != 11]
  assert error is None
  assert runs == 8  # 2 log2(16)


@pytest.mark.parametrize("bad", [[0], [15], [3, 4, 9], list(range(16))])
def test_every_bad_one_is_counted(bad):
  policy = bad_records.BadRecords("skip", 0.5)
  found, error, _ = retry(bad, policy)
  assert found == [n for n in range(16) if n not in bad]
  assert error is None and policy.skipped == len(bad)


def test_the_first_one_fails_and_what_follows_is_not_enqueued():
  found, error, _ = retry([5, 7], bad_records.BadRecords())
  assert found == [0, 1, 2, 3, 4]
  assert error.message.startswith("f:5: StringToNumberOp could not correctly convert string: x")


def test_where_no_parts_can_be_fed_all_are_named():
  found, error, _ = retry([5, 7], bad_records.BadRecords("skip", 0.5), shape=(16,))
  assert found == []
  assert error.message.startswith("one of f:0 to f:15: StringToNumberOp could not")


def test_too_many():
  found, error, _ = retry([2, 3], bad_records.BadRecords("skip", 0.01))
  assert found == [0, 1]
  assert isinstance(error, bad_records.TooManyBadRecordsError) and "f:3" in str(error)
