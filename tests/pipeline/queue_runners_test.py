"""Classic loops with a session by hand, the traps of TensorFlow's runners among them."""
from __future__ import annotations

import gc
import logging
import threading
import weakref

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.pipeline import classic
from tf1ps.cluster.session import BoundedSession
from tf1ps.pipeline import bad_records, graph_input, queue_runners
from tf1ps.pipeline import coordinator as coordinator_lib

NEVER = 1000.0  # seconds; a limit that no test lasts for


@pytest.fixture(autouse=True)
def own_graph():
  with tf.Graph().as_default():
    yield


def wait_for_failure(session):
  harness.wait_until(lambda: queue_runners.failures_of(session).error is not None, what="a failure")


def test_all_records_and_the_end(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 9)], batch_size=2)
  with classic.initialised() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    found, error = classic.take_all(session, batch, coord)
    assert found == list(range(1, 10))
    assert isinstance(error, tf.errors.OutOfRangeError)
    coord.request_stop(error)
    coord.join(threads)
  assert len(threads) == 4  # each of the two runners has one more, which ends the others


@pytest.mark.parametrize("coordinator", [tf1ps.Coordinator, tf.train.Coordinator, None])
@pytest.mark.parametrize("read_up_to", [0, 4, 100])
def test_a_bad_field_is_named_after_all_records_before_it(
    tmp_path, set_timing, coordinator, read_up_to):
  set_timing(coordinator_lib, runner_threads_end_limit=NEVER)
  path = classic.write(tmp_path / "a.csv", 9, bad=[7, 9])
  batch = classic.pipeline([path], read_up_to=read_up_to)
  with classic.initialised() as session:
    coord = coordinator and coordinator()
    tf1ps.start_queue_runners(session, coord)
    wait_for_failure(session)  # before the first record is taken
    found, error = classic.take_all(session, batch, coord)
    assert found == [1, 2, 3, 4, 5, 6]
    assert isinstance(error, tf.errors.InvalidArgumentError)
    assert error.message.splitlines() == [
      "%s:7: Field 1 in record 0 is not a valid int32: x" % path,
      "\t [[node DecodeCSV]]"]
    assert error.op.name == "DecodeCSV"
    if coord is not None:
      assert coord.should_stop()
      with pytest.raises(tf.errors.InvalidArgumentError, match="csv:7: "):
        coord.join(stop_grace_period_secs=NEVER)


def test_a_shuffling_queue_is_drained_before_the_failure(tmp_path):
  path = classic.write(tmp_path / "a.csv", 30, bad=[21])
  batch = classic.pipeline([path], capacity=60, shuffle=True)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert sorted(found) == list(range(1, 21))
  assert "a.csv:21: Field 1" in error.message


def test_what_the_other_threads_had_read_is_not_lost(tmp_path):
  path = classic.write(tmp_path / "a.csv", 400, bad=[200])
  batch = classic.pipeline([path], read_up_to=3, threads=4, capacity=1000)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert set(range(1, 199)) <= set(found)
  assert "a.csv:200: " in error.message


def test_a_missing_file(tmp_path):
  path = classic.write(tmp_path / "a.csv", 5)
  batch = classic.pipeline([path, str(tmp_path / "gone.csv")])
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert found == [1, 2, 3, 4, 5]
  assert isinstance(error, tf.errors.NotFoundError) and "gone.csv" in error.message


def test_an_uninitialised_counter_says_what_to_run(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 5)])
  with tf.Session() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert found == []
  assert isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError))
  assert "limit_epochs/epochs" in error.message
  assert "run tf.local_variables_initializer() before" in error.message


def test_a_failure_passes_further_queues(tmp_path):
  first = classic.pipeline([classic.write(tmp_path / "a.csv", 9, bad=[6])])
  doubled = tf.train.batch([first * 2], 1, enqueue_many=True)
  again = tf.train.batch([doubled + 1], 1, enqueue_many=True)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, again)
  assert found == [3, 5, 7, 9, 11]
  assert "a.csv:6: " in error.message


@pytest.mark.parametrize("loops_are_operations", [False, True])
def test_a_bad_field_in_a_loop_over_the_records_of_a_read(tmp_path, loops_are_operations):
  names = tf.train.string_input_producer([classic.write(tmp_path / "a.csv", 9, bad=[7])],
                                         num_epochs=1)
  lines = tf.TextLineReader().read_up_to(names, 5)[1]
  (tf.enable_control_flow_v2 if loops_are_operations else tf.disable_control_flow_v2)()
  numbers = tf.map_fn(lambda line: tf.decode_csv(line, [[0], [0]])[1], lines, tf.int32)
  batch = tf.train.batch([numbers], 1, enqueue_many=True)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert found == [1, 2, 3, 4, 5, 6]
  assert "a.csv:7: Field 1 in record 0 is not a valid int32: x" in error.message


def test_a_record_of_another_type_than_the_enqueued_one(tmp_path):
  """An error in Python inside of the pipeline names the record too."""
  def refuse(line):
    if line == b"3,3":
      raise TypeError("no number in %r" % line)
    return np.int32(line.split(b",")[0])

  names = tf.train.string_input_producer([classic.write(tmp_path / "a.csv", 5)], num_epochs=1)
  number = tf.py_func(refuse, [tf.TextLineReader().read(names)[1]], tf.int32)
  number.set_shape([])
  batch = tf.train.batch([number], 1)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert found == [1, 2]
  assert "a.csv:3: TypeError: no number in b'3,3'" in error.message


@pytest.mark.parametrize("read_up_to, threads", [(0, 1), (7, 1), (100, 1), (0, 3), (7, 3)])
def test_bad_records_are_skipped(tmp_path, caplog, read_up_to, threads):
  graph_input.use_bad_records(bad_records.BadRecords("skip", 0.5))
  bad = [1, 5, 6, 30]
  path = classic.write(tmp_path / "a.csv", 30, bad=bad)
  batch = classic.pipeline([path], read_up_to=read_up_to, threads=threads)
  with caplog.at_level(logging.WARNING, "tf1ps"), classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert type(error) is tf.errors.OutOfRangeError
  assert (found if threads == 1 else sorted(found)) == [n for n in range(1, 31) if n not in bad]
  assert graph_input.input_of().bad_records.skipped == 4
  said = [record.getMessage() for record in caplog.records if record.name == "tf1ps"]
  assert sorted(said) == sorted(
    "skipped the bad record %s:%d: Field 1 in record 0 is not a valid int32: x" % (path, n)
    for n in bad)


def test_too_many_bad_records_end_it(tmp_path):
  graph_input.use_bad_records(bad_records.BadRecords("skip", 0.02))
  path = classic.write(tmp_path / "a.csv", 200, bad=[11, 12, 13, 14])
  batch = classic.pipeline([path], read_up_to=5, capacity=300)
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert isinstance(error, bad_records.TooManyBadRecordsError)
  assert "3 of 100 records are bad" in str(error) and "a.csv:13" in str(error)
  assert found == list(range(1, 11))


def test_too_many_bad_records_are_told_at_the_end_of_few(tmp_path):
  graph_input.use_bad_records(bad_records.BadRecords("skip", 0.05))
  path = classic.write(tmp_path / "a.csv", 30, bad=[7, 12])
  batch = classic.pipeline([path])
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert len(found) == 28
  assert isinstance(error, bad_records.TooManyBadRecordsError)
  assert "2 of 30 records are bad" in str(error)


def test_the_old_form_of_a_loop_ends_with_the_failure(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 9, bad=[4])])
  found = []
  with classic.initialised() as session:
    take = session.make_callable(batch)  # made before runners start: raises what TensorFlow does
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(sess=session, coord=coord)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a.csv:4: "):
      try:
        while not coord.should_stop():
          found += take().tolist()
      except tf.errors.OutOfRangeError:
        pass
      finally:
        coord.request_stop()
        coord.join(threads)
  assert found == [1, 2, 3]


def test_a_callable_raises_the_failure_too(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 9, bad=[2])])
  with classic.initialised() as session:
    tf1ps.start_queue_runners(session)
    take = session.make_callable(batch)
    assert take().tolist() == [1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="a.csv:2: "):
      take()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a.csv:2: "):
      batch.eval(session=session)


@pytest.mark.parametrize("coordinator", [tf1ps.Coordinator, tf.train.Coordinator])
def test_what_waits_to_be_enqueued_is_cancelled(tmp_path, set_timing, coordinator):
  set_timing(coordinator_lib, runner_threads_end_limit=NEVER)
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 9)], num_epochs=None, capacity=2)
  with classic.initialised() as session:
    coord = coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    session.run(batch)
    coord.request_stop()
    coord.join(threads, stop_grace_period_secs=NEVER)
  assert not any(thread.is_alive() for thread in threads)


def test_a_thread_in_python_is_left_behind(tmp_path):
  stuck = classic.Stuck()
  names = tf.train.string_input_producer([classic.write(tmp_path / "a.csv", 5)])
  tf.train.batch([tf.reshape(tf.py_func(stuck, [tf.TextLineReader().read(names)[1]], tf.string),
                             [])], 1)
  with classic.initialised() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    stuck.entered.wait(60)
    coord.request_stop()
    coord.join(threads, stop_grace_period_secs=NEVER)
    left = [thread.name for thread in threads if thread.is_alive() and thread.enqueues]
    stuck.leave.set()
    assert left == ["tf1ps: queue runner batch/fifo_queue_enqueue"]
    for thread in threads:
      thread.join(60)
      assert not thread.is_alive()


def test_threads_are_made_once_for_a_session(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 5)], num_epochs=None)
  with classic.initialised() as session, classic.initialised() as other:
    assert len(tf1ps.start_queue_runners(session)) == 2
    assert tf1ps.start_queue_runners(session) == []
    assert len(tf1ps.start_queue_runners(other)) == 2
  runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
  assert [type(one) for one in runners] == [queue_runners.Runner] * 2


def test_an_enqueue_operation_may_be_a_tensor():
  queue = tf.FIFOQueue(10, tf.float32, [[]])
  with tf.control_dependencies([queue.enqueue(7.0)]):
    after = tf.identity(1.0)
  tf.train.add_queue_runner(tf.train.QueueRunner(queue, [after]))
  taken = queue.dequeue()
  with tf.Session() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    assert session.run(taken) == 7.0
    coord.request_stop()
    coord.join(threads)


def test_threads_that_are_not_started_can_be(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 3)])
  with classic.initialised() as session:
    threads = tf1ps.start_queue_runners(session, start=False)
    assert not any(thread.is_alive() for thread in threads)
    for thread in threads:
      thread.start()
    assert classic.take_all(session, batch)[0] == [1, 2, 3]


def test_a_finalized_graph_gives_the_error_without_its_place(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 5, bad=[3])])
  with classic.initialised() as session:
    session.graph.finalize()
    tf1ps.start_queue_runners(session)
    found, error = classic.take_all(session, batch)
  assert found == [1, 2]
  assert error.message.startswith("Field 1 in record 0 is not a valid int32: x")


def test_a_runner_of_the_users_own_class_stays(tmp_path):
  class OwnRunner(tf.train.QueueRunner):
    pass

  queue = tf.FIFOQueue(5, tf.int32)
  own = OwnRunner(queue, [queue.enqueue(1)])
  tf.train.add_queue_runner(own)
  assert queue_runners.adopt_queue_runners() == [own]
  with tf.Session() as session:
    coord = tf1ps.Coordinator()
    threads = tf1ps.start_queue_runners(session, coord)
    assert session.run(queue.dequeue()) == 1
    coord.request_stop()
    coord.join(threads)


def test_no_session_and_no_runner(caplog):
  with pytest.raises(ValueError, match="session"):
    tf1ps.start_queue_runners()
  with pytest.raises(TypeError):
    tf1ps.start_queue_runners("session")
  with tf.Session():
    assert tf1ps.start_queue_runners() == []


def test_a_meta_graph_keeps_the_runners(tmp_path):
  batch = classic.pipeline([classic.write(tmp_path / "a.csv", 5)])
  queue_runners.adopt_queue_runners()
  meta = tf.train.export_meta_graph()
  with tf.Graph().as_default():
    tf.train.import_meta_graph(meta)
    with classic.initialised() as session:
      tf1ps.start_queue_runners(session)
      assert classic.take_all(session, batch.name)[0] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_the_session_is_not_kept_alive(tmp_path):
  classic.pipeline([classic.write(tmp_path / "a.csv", 5)])
  session = classic.initialised()
  coord = tf1ps.Coordinator()
  threads = tf1ps.start_queue_runners(session, coord)
  coord.request_stop()
  coord.join(threads)
  session.close()
  gone = weakref.ref(session)
  del session
  del threads, coord
  gc.collect()
  assert gone() is None
  assert not [thread for thread in threading.enumerate() if "queue runner" in thread.name]


# Failures.


END = tf.errors.OutOfRangeError(None, None, "queue is closed")


def test_the_first_error_counts_and_explains_the_end_alone(caplog):
  failures = queue_runners.Failures()
  assert failures.explain(END) is END
  first, second = ValueError("first"), ValueError("second")
  failures.record(first, "one")
  failures.record(second, "two")
  assert failures.error is first
  assert failures.explain(END) is first
  other = KeyError("other")
  assert failures.explain(other) is other
  assert [record.getMessage() for record in caplog.records] == [
    "the queue runner of one has failed; the elements that it enqueued before are still in "
    "the queue: first"]


def test_coordinators_stop_when_the_consumer_gets_the_error():
  failures = queue_runners.Failures()
  coords = [tf.train.Coordinator() for _ in range(2)]
  for coord in coords:
    failures.stop_at_error(coord)
  coords[1].request_stop()
  coords[1].join()  # and takes no errors any more
  failures.record(ValueError("first"), "one")
  assert not coords[0].should_stop()
  failures.explain(END)
  assert coords[0].should_stop()
  with pytest.raises(ValueError, match="first"):
    coords[0].join()


@pytest.mark.parametrize("kind", [tf.Session, BoundedSession])
def test_each_session_has_its_own_and_runs_are_explained(kind):
  with tf.Graph().as_default():
    queue = tf.FIFOQueue(1, tf.int32)
    taken, close = queue.dequeue(), queue.close()
    one, other = kind(), kind()
    for session in (one, other):
      queue_runners.explain_runs(session)
      queue_runners.explain_runs(session)
      session.run(close)
    queue_runners.failures_of(one).record(ValueError("of one"), "queue")
    for run in (lambda: one.run(taken), one.make_callable(taken)):
      with pytest.raises(ValueError, match="of one") as error:
        run()
      assert isinstance(error.value.__cause__, tf.errors.OutOfRangeError)
    for run in (lambda: other.run(taken), other.make_callable(taken)):
      with pytest.raises(tf.errors.OutOfRangeError):
        run()
    one.close()
    other.close()
