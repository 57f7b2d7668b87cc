from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.pipeline import classic
from tf1ps.pipeline import bad_records, graph_input, queue_runners, record_retry


@pytest.fixture(autouse=True)
def own_graph():
  with tf.Graph().as_default():
    yield


@pytest.fixture
def lines(tmp_path):
  """Reads "1,1", "2,2", ... as a scalar; a thread of TensorFlow's own brings the file's name."""
  names = tf.train.string_input_producer([classic.write(tmp_path / "a.csv", 6, bad=[3])])
  return tf.TextLineReader().read(names)[1]


def number_of(line):
  return tf.string_to_number(tf.string_split([line], ",").values[1], tf.int32)


def run(copy, times=1):
  """Runs a copy; returns all that is in its queue, the last key, and the error of the last run."""
  queue_size = copy.original.graph.get_operation_by_name("size").outputs[0]
  dequeue = copy.original.graph.get_operation_by_name("dequeue").outputs[0]
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    queue_runners.start_queue_runners(session)
    run_copy, error = session.make_callable(copy.enqueue), None
    try:
      for _ in range(times):
        run_copy()
    except tf.errors.OpError as caught:
      error = caught
    found = [session.run(dequeue) for _ in range(session.run(queue_size))]
    key = session.run(copy.last_keys).decode()
  return found, key.rpartition("/")[2], error


def enqueue(tensor):
  queue = tf.FIFOQueue(10, tensor.dtype, [[]])
  queue.size(name="size")
  queue.dequeue(name="dequeue")
  return queue.enqueue(tensor)


def test_it_enqueues_the_same_and_remembers_the_record(lines):
  copy = record_retry.track_records(enqueue(number_of(lines)))
  found, key, error = run(copy, 2)
  assert (found, key, error) == ([1, 2], "a.csv:2", None)
  found, key, error = run(copy, 3)
  assert (found, key) == ([1, 2], "a.csv:3")
  assert copy.is_in(error)
  again = copy.of_original(error, "no number")
  assert type(again) is type(error) and again.op.name == "StringToNumber"
  assert again.message == "no number\n\t [[node StringToNumber]]"


def test_an_error_of_the_reader_is_not_in_the_copy(tmp_path):
  names = tf.train.string_input_producer([str(tmp_path / "gone.csv")])
  copy = record_retry.track_records(enqueue(number_of(tf.TextLineReader().read(names)[1])))
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    queue_runners.start_queue_runners(session)
    for function in (session.make_callable(copy.enqueue), lambda: session.run(copy.enqueue)):
      with pytest.raises(tf.errors.NotFoundError) as error:
        function()
      assert not copy.is_in(error.value)


def test_what_does_not_depend_on_the_records_is_not_copied(lines):
  drawn = tf.random_uniform([], maxval=2, dtype=tf.int32, seed=1, name="drawn")
  copy = record_retry.track_records(enqueue(number_of(lines) + 0 * drawn))
  names = {op.name[len(copy.prefix):] for op in tf.get_default_graph().get_operations()
           if op.name.startswith(copy.prefix)}
  assert "StringToNumber" in names
  assert not [name for name in names if "drawn" in name or "Reader" in name or "Queue" in name]


def test_random_values_that_depend_on_the_records_differ_between_copies(lines):
  tf.set_random_seed(5)
  number = number_of(lines)
  drawn = tf.random_uniform([], maxval=number + 10**6, dtype=tf.int32, name="drawn")
  original = enqueue(drawn)
  first, second = [record_retry.track_records(original, number) for number in range(2)]
  assert run(first)[0] != run(second)[0]


def test_control_dependencies_are_kept(lines):
  counter = tf.get_variable("counter", [], tf.int32, tf.zeros_initializer(), use_resource=True)
  with tf.control_dependencies([tf.assert_non_negative(tf.strings.length(lines) - 3),
                                counter.assign_add(1).op]):
    number, count = number_of(lines), counter.read_value()
  copy = record_retry.track_records(enqueue(tf.identity(number) * 10 + count))
  assert run(copy, 2)[0] == [11, 22]


def test_a_condition_on_a_record(lines):
  number = number_of(lines)
  copy = record_retry.track_records(enqueue(
    tf.cond(number > 1, lambda: number * 10, lambda: tf.constant(-1))))
  assert run(copy, 2)[0] == [-1, 20]


def test_a_function_of_a_record(lines):
  doubled = tf.py_func(lambda n: n + n, [number_of(lines)], tf.int32)
  doubled.set_shape([])
  assert run(record_retry.track_records(enqueue(doubled)), 2)[0] == [2, 4]


def test_functions_of_the_graph(lines):
  @tf.function
  def doubled(n):
    return n + n

  assert run(record_retry.track_records(enqueue(doubled(number_of(lines)))), 2)[0] == [2, 4]


@pytest.mark.parametrize("loops_are_operations", [False, True])
def test_a_loop_over_a_record(lines, loops_are_operations):
  def rounds():
    step = tf.constant(2)  # what the loop takes from outside
    return tf.while_loop(lambda n, _: n < 10, lambda n, total: (n * step, total + n),
                         [number_of(lines), tf.constant(0)])[1]

  (tf.enable_control_flow_v2 if loops_are_operations else tf.disable_control_flow_v2)()
  copy = record_retry.track_records(enqueue(rounds()))
  assert run(copy, 2)[0] == [1 + 2 + 4 + 8, 2 + 4 + 8]


def test_a_record_source_is_not_a_reader(lines):
  keys = tf.placeholder_with_default("elsewhere/b.csv:9", [])
  values = tf.placeholder_with_default("9,99", [])
  graph_input.add_record_source(keys, values)
  copy = record_retry.track_records(enqueue(number_of(values)))
  assert run(copy)[:2] == ([99], "b.csv:9")
  assert len(copy.counts) == 1  # of the graph's reader


def test_fed_records_are_enqueued(lines):
  copy = record_retry.track_records(enqueue(number_of(lines)))
  with tf.Session() as session:
    session.run(copy.enqueue, {copy.keys: "b.csv:7", copy.values: "7,70"})
    assert session.run("dequeue:0") == 70


def test_what_cannot_be_copied(lines, tmp_path):
  assert record_retry.track_records(enqueue(lines)) is None  # nothing is decoded
  assert record_retry.track_records(tf.FIFOQueue(1, tf.int32).enqueue(1)) is None
  names = tf.train.string_input_producer([classic.write(tmp_path / "b.csv", 6)])
  other = tf.TextLineReader().read(names)[1]
  both = tf.FIFOQueue(1, tf.int32).enqueue(number_of(lines) + number_of(other))
  assert record_retry.track_records(both) is None


# Retries.


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
    copy = record_retry.track_records(queue.enqueue_many(tf.string_to_number(pair[1], tf.int32)))
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
