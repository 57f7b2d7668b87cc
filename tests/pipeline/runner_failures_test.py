from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.pipeline import runner_failures

END = tf.errors.OutOfRangeError(None, None, "queue is closed")


def test_the_first_error_counts_and_explains_the_end_alone(caplog):
  failures = runner_failures.Failures()
  assert failures.explain(END) is END
  first, second = ValueError("first"), ValueError("second")
  failures.record(first, "one")
  failures.record(second, "two")
  assert failures.error is first
  assert failures.explain(END) is first
  other = KeyError("other")
  assert failures.explain(other) is other
  assert [record.getMessage() for record in caplog.records] == [
    "the queue runner of one has failed; what it had enqueued before is still there: first"]


def test_coordinators_are_told_when_the_consumer_is():
  failures = runner_failures.Failures()
  coords = [tf.train.Coordinator() for _ in range(2)]
  for coord in coords:
    failures.tell(coord)
  coords[1].request_stop()
  coords[1].join()  # and takes no errors any more
  failures.record(ValueError("first"), "one")
  assert not coords[0].should_stop()
  failures.explain(END)
  assert coords[0].should_stop()
  with pytest.raises(ValueError, match="first"):
    coords[0].join()


@pytest.mark.parametrize("kind", [tf.Session, session_lib.BoundedSession])
def test_each_session_has_its_own_and_runs_are_explained(kind):
  with tf.Graph().as_default():
    queue = tf.FIFOQueue(1, tf.int32)
    taken, close = queue.dequeue(), queue.close()
    one, other = kind(), kind()
    for session in (one, other):
      runner_failures.explain_runs(session)
      runner_failures.explain_runs(session)
      session.run(close)
    runner_failures.of(one).record(ValueError("of one"), "queue")
    for run in (lambda: one.run(taken), one.make_callable(taken)):
      with pytest.raises(ValueError, match="of one") as error:
        run()
      assert isinstance(error.value.__cause__, tf.errors.OutOfRangeError)
    for run in (lambda: other.run(taken), other.make_callable(taken)):
      with pytest.raises(tf.errors.OutOfRangeError):
        run()
    one.close()
    other.close()
