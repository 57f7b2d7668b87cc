from __future__ import annotations

import contextlib
import json

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks, harness, needs
from tests.transfer import kernel_counters, traffic_tasks
from tf1ps.graph import OpDevices, needed_ops, task_of_device
from tf1ps.transfer import traffic, wire_options

PS, WORKER = ["/job:ps/task:0", "/job:ps/task:1"], "/job:worker/task:0"
RUNS = [(True, "sgd"), (False, "sgd"), (True, "adam"), (False, "adam"), (True, "float16")]
STEPS = 50


@contextlib.contextmanager
def measure(forks, traces):
  """Yields {(use_resource, optimizer): what a worker with two ps says of its steps}."""
  try:
    kernel_counters.carried([1])
  except OSError as error:
    needs.skip("packet counters", error)
  jobs = {"ps": harness.addresses(2), "worker": harness.addresses(1)}
  tasks = [forks.start("ps %d" % i, cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  try:
    for task in tasks:
      task.wait_for("up")
    tasks.append(forks.start("worker", traffic_tasks.train, jobs, RUNS, STEPS, traces))
    said, results = 0, {}
    for run in RUNS:
      line = tasks[-1].wait_for("{", since=said)
      said = tasks[-1].lines.index(line) + 1
      results[run] = json.loads(line)
    yield results
  finally:
    for task in tasks:
      task.kill()


@pytest.fixture(scope="module")
def measured(forks):
  with measure(forks, 0) as results:
    yield results


@pytest.fixture(scope="module")
def traced(forks):
  """The same with the messages of a traced step, which takes several times as long."""
  with measure(forks, 10) as results:
    yield results


def report_of(messages):
  return traffic.StepTraffic([traffic.Message(*message) for message in messages], 1)


@pytest.mark.slow
@pytest.mark.parametrize("use_resource, optimizer", RUNS)
def test_bytes_are_those_that_a_run_brings(traced, use_resource, optimizer):
  result = traced[use_resource, optimizer]
  graph, trace = report_of(result["graph"]), report_of(result["trace"])
  valued = [sorted((m.bytes, m.source, m.destination) for m in one.messages
                   if m.bytes and m.messages) for one in (graph, trace)]
  assert valued[0] == valued[1]
  assert graph.down.bytes == trace.down.bytes == 2 * (300 * 300 + 300) * (
    2 if optimizer == "float16" else 4)
  assert not graph.down.unknown + graph.up.unknown


@pytest.mark.slow
@pytest.mark.parametrize("use_resource, optimizer", RUNS)
def test_signals_are_nearly_those_that_a_run_brings(traced, use_resource, optimizer):
  result = traced[use_resource, optimizer]
  graph, trace = report_of(result["graph"]), report_of(result["trace"])
  # The optimizer of 1.15 makes a signal more for the constant shape of each bias, and joins others.
  slack = 3 if tf.version.VERSION.startswith("1.") else 0
  for way in ("down", "up"):
    of_graph, of_trace = getattr(graph, way), getattr(trace, way)
    assert abs(of_graph.signals - of_trace.signals) <= slack
  assert abs(graph.across.signals - trace.across.signals) <= 2


@pytest.mark.parametrize("use_resource, optimizer", RUNS)
def test_the_kernel_counts_these_bytes_and_what_grpc_adds(measured, use_resource, optimizer):
  result = measured[use_resource, optimizer]
  graph = report_of(result["graph"])
  for way, total in (("down", graph.down), ("up", graph.up)):
    # 200 to 400 bytes a message, for a request on the one way and its answer on the other; and what
    # begins and ends the run on each ps.
    messages = graph.down.messages + graph.up.messages
    extra = result["kernel"][way] - total.bytes
    assert 0 < extra < 400 * messages + 2 * 3000, (way, extra, messages)
    assert extra < 0.02 * total.bytes


def graph_of(use_resource=True, tasks=2, units=10):
  """A layer on a ps for the weights and one for the biases; returns the train op and the loss."""
  with tf.device(tf1ps.replica_device_setter(tasks, worker_device=WORKER)):
    inputs = tf.placeholder(tf.float32, [None, 5], "inputs")
    weights = tf.get_variable("w", [5, units], use_resource=use_resource)
    outputs = tf.matmul(inputs, weights) + tf.get_variable("b", [units], use_resource=use_resource)
    loss = tf.reduce_mean(tf.square(outputs), name="loss")
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss), loss


@pytest.fixture
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def values(report):
  return [(m.tensor, m.source, m.destination, m.bytes) for m in report.messages if m.bytes != 0]


@pytest.mark.parametrize("use_resource", [False, True])
def test_totals_of_each_ps(graph, use_resource):
  report = traffic.report_traffic(graph_of(use_resource))
  assert sorted(report.by_ps) == PS
  assert [(down.bytes, down.messages) for down, _ in report.by_ps.values()] == [
    (200, 2), (40, 2)]  # the tensor and, of the update that is fetched, the end
  assert report.down.bytes == 240 and report.down.signals == 2
  # The learning rate too, which TensorFlow 2 does not send to two tasks.
  assert report.up.bytes - 240 == (8 if tf.version.VERSION.startswith("1.") else 0)
  assert report.across == traffic.Total(0, 0, 0, 0)


def test_steps_divide(graph):
  fetches = graph_of()
  one, three = traffic.report_traffic(fetches), traffic.report_traffic(fetches, steps=3)
  assert three.down == traffic.Total(80, 4 / 3, 2 / 3, 0)
  assert str(three).startswith("sent per step: 80 bytes and 1.3 messages down, ")
  assert one.messages == three.messages


def test_names_and_structures_are_fetches_too(graph):
  train_op, loss = graph_of()
  expected = traffic.report_traffic([train_op, loss])
  assert traffic.report_traffic({"a": train_op.name, "b": ["loss:0", None]}) == expected
  assert traffic.report_traffic(tf.global_variables()[0]).down.bytes == 200


def test_a_tensor_for_several_and_a_fetched_one(graph):
  with tf.device(PS[0]):
    a = tf.identity(tf.zeros([3]), "a")
  with tf.device(WORKER):
    b, c = a + 1, a + 2
  with tf.device(PS[1]):
    d = tf.identity(a, "d")
  assert values(traffic.report_traffic([b, c, d])) == [
    ("a:0", PS[0], WORKER, 12), ("a:0", PS[0], PS[1], 12), ("d:0", PS[1], WORKER, 12)]
  report = traffic.report_traffic([b, c, d])
  assert report.down == traffic.Total(24, 1, 0, 0)  # what is fetched comes with the answer
  assert report.across == traffic.Total(12, 1, 0, 0)


def test_what_is_fetched_comes_beside_what_is_needed(graph):
  with tf.device(PS[0]):
    a = tf.identity(tf.zeros([3]), "a")
  with tf.device(WORKER):
    b = tf.negative(a)
  report = traffic.report_traffic([a, b])
  assert report.down == traffic.Total(24, 1, 0, 0)


def test_signals_of_several_tasks_to_one_operation(graph):
  ends = []
  for task in PS:
    with tf.device(task):
      ends += [tf.no_op(), tf.no_op()]
  with tf.device(WORKER), tf.control_dependencies(ends):
    report = traffic.report_traffic(tf.constant(1.0, name="end"))
  assert [m[:4] for m in report.messages] == [("^end", task, WORKER, 0) for task in PS]


def test_what_is_fed(graph):
  with tf.device(PS[0]):
    a = tf.placeholder(tf.float32, [3], "a")
    b = tf.negative(a, "b")
  with tf.device(WORKER):
    c = tf.negative(b, "c")
  report = traffic.report_traffic(c)
  assert values(report) == [("a:0", WORKER, PS[0], 12), ("b:0", PS[0], WORKER, 12)]
  assert report.up == traffic.Total(12, 0, 0, 0)  # comes with the question
  assert values(traffic.report_traffic(c, feeds=[b])) == [
    ("b:0", WORKER, PS[0], 12), ("b:0", PS[0], WORKER, 12)]


@pytest.mark.parametrize("dtype, shape, batch, size, known_by", [
  (tf.float64, [2, 3], None, 48, "shape"), (tf.bool, [], None, 1, "shape"),
  (tf.float32, [None, 3], 7, 84, "batch"), (tf.int64, [None], 7, 56, "batch"),
  (tf.float32, [None, 3], None, None, ""), (tf.float32, [None, None], 7, None, ""),
  (tf.float32, None, 7, None, ""), (tf.string, [2], 7, None, "")])
def test_sizes(graph, dtype, shape, batch, size, known_by):
  with tf.device(PS[0]):
    value = tf.placeholder(dtype, shape, "value")
  with tf.device(WORKER):
    report = traffic.report_traffic(tf.identity(value), batch=batch)
  _, message = report.messages
  assert message == traffic.Message("value:0", PS[0], WORKER, size, known_by)
  assert report.down == traffic.Total(size or 0, 1, 0, int(size is None))


def test_small_constants_that_several_tasks_need(graph):
  with tf.device(WORKER):
    small, large = tf.constant([1.0] * 16, name="s"), tf.constant([1.0] * 17, name="l")
  for task in PS:
    with tf.device(task):
      ends = [tf.identity(small).op, tf.identity(large).op]
  ends += [op for op in graph.get_operations() if op.type == "Identity"]
  sent = [m.tensor for m in traffic.report_traffic(ends).messages]
  is_old = tf.version.VERSION.startswith("1.")
  assert sent == (["s:0", "l:0"] * 2 if is_old else ["l:0"] * 2)
  assert len(traffic.report_traffic(ends[:2]).messages) == 2  # one task needs them: both are sent


def test_a_trace_and_a_graph_together(graph):
  def message(name, way, size, messages=1):
    return traffic.Message(name, *way, size, "", messages)

  down, up, other = (PS[0], WORKER), (WORKER, PS[0]), (WORKER, PS[1])
  of_graph = traffic.StepTraffic([
    message("w:0", down, 8), message("e:0", down, None), message("l:0", down, 4, 0),
    message("g:0", up, 8), message("h:0", up, 4), message("i:0", other, 4),
    message("^n", other, 0)], 2)
  of_trace = traffic.StepTraffic([
    message("w", down, 8), message("e", down, 40), message("h", up, 4),
    message("^m", up, 0), message("i", other, 4)], 2)  # a signal stands for no tensor
  assert traffic.merge_trace(of_graph, of_trace) == traffic.StepTraffic([
    message("w", down, 8), message("e", down, 40), message("l:0", down, 4, 0),  # all sizes
    message("g:0", up, 8), message("h:0", up, 4),  # the trace has missed one
    message("i", other, 4)], 2)  # the signal has been optimized away


def test_a_table(graph):
  report = traffic.StepTraffic([
    traffic.Message("w:0", PS[0], WORKER, 2000000, "shape"),
    traffic.Message("x:0", PS[0], WORKER, None, ""),
    traffic.Message("g:0", WORKER, PS[1], 12, "shape"),
    traffic.Message("^a", PS[0], PS[1], 0, "shape")], 1)
  assert traffic.traffic_table(report).splitlines() == [
    "a step                  down: bytes  messages      up: bytes  messages",
    "/job:ps/task:0         >= 2,000,000         2              0         0",
    "/job:ps/task:1                    0         0             12         1",
    "all                    >= 2,000,000         2             12         1",
    "between ps, or between workers: 0 bytes and 1 message",
    "     2,000,000 bytes: w:0, /job:ps/task:0 to /job:worker/task:0",
    "            12 bytes: g:0, /job:worker/task:0 to /job:ps/task:1",
    "of unknown size: x:0"]
  assert str(report) == "sent per step: at least 2 MB and 2 messages down, 12 bytes and 1 up"


@pytest.mark.parametrize("count, text", [
  (0, "0 bytes"), (12, "12 bytes"), (999.4, "999 bytes"), (999.6, "1 KB"), (1661234, "1.66 MB"),
  (999900, "1 MB"), (1500, "1.5 KB"), (7450000, "7.45 MB"), (2.5e9, "2.5 GB"),
  (12.3e12, "12.3 TB")])
def test_bytes_for_people(count, text):
  assert wire_options.format_bytes(count) == text


def test_several_workers(graph):
  with tf.device("/job:worker/task:0"):
    value = tf.identity(tf.zeros([]))
  with tf.device("/job:worker/task:1"):
    value = tf.identity(value)
  with pytest.raises(ValueError, match="/job:worker/task:0, /job:worker/task:1. Give the task"):
    traffic.report_traffic(value)
  report = traffic.report_traffic(value, worker="/job:worker/task:1")
  assert [m.messages for m in report.messages] == [1]
  assert traffic.report_traffic([]) == traffic.StepTraffic([], 1)


@pytest.mark.parametrize("kwargs, message", [
  ({"steps": 0}, "steps must be .* 1 or more, got 0"), ({"batch": 0}, "batch must be .* got 0")])
def test_arguments(graph, kwargs, message):
  with pytest.raises(ValueError, match=message):
    traffic.report_traffic([], **kwargs)


def on(task, name, *waits_for):
  """A constant there, or for a name that ends with "noop" an operation without a value."""
  with tf.device(task), tf.control_dependencies(waits_for):
    return tf.no_op(name) if name.endswith("noop") else tf.constant(1.0, name=name).op


def signals(*fetches):
  devices = OpDevices(WORKER)
  ops = needed_ops(fetches)
  return [tuple(one) for one in traffic.find_signals(
    ops, fetches, {op: task_of_device(devices.of(op)) for op in ops})]


def test_one_signal_for_those_who_wait_for_the_same(graph):
  a = on(PS[0], "a")
  assert signals(on(WORKER, "b", a), on(WORKER, "c", a), on(PS[1], "d", a), on(PS[0], "e", a)) == [
    ("a", PS[0], WORKER), ("a", PS[0], PS[1])]


def test_one_signal_for_one_who_waits_for_several_of_a_task(graph):
  waits_for = [on(PS[0], "a"), on(PS[0], "b"), on(PS[1], "c"), on(WORKER, "d")]
  assert signals(on(WORKER, "e", *waits_for)) == [("e", PS[0], WORKER), ("c", PS[1], WORKER)]


def test_a_noop_between_two_operations_of_a_task_is_left_out(graph):
  noop = on(WORKER, "noop", on(PS[0], "a"))
  assert signals(on(PS[0], "b", noop)) == []
  assert signals(noop) == [("a", PS[0], WORKER)]  # fetched


def test_noops_in_a_row(graph):
  first = on(WORKER, "first_noop", on(PS[0], "a"))
  assert signals(on(PS[1], "b", on(WORKER, "second_noop", first))) == [("a", PS[0], PS[1])]


def test_a_noop_stays_where_it_gathers_for_another_task(graph):
  noop = on(WORKER, "noop", on(PS[0], "a"), on(PS[1], "b"))
  assert signals(on(PS[0], "c", noop)) == [
    ("a", PS[0], WORKER), ("b", PS[1], WORKER), ("noop", WORKER, PS[0])]


def test_a_noop_stays_where_it_passes_on_to_several(graph):
  noop = on(WORKER, "noop", on(PS[0], "a"))
  assert signals(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [("a", PS[0], WORKER)]
  assert signals(on(PS[0], "d", noop), on(PS[0], "e", noop)) == [
    ("a", PS[0], WORKER), ("noop", WORKER, PS[0])]


def test_a_noop_that_saves_dependencies(graph):
  noop = on(PS[0], "noop", *[on(PS[0], "a%d" % i) for i in range(3)])
  assert signals(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [("noop", PS[0], WORKER)]


def test_a_noop_stays_where_it_saves_dependencies_within_a_task(graph):
  noop = on(PS[0], "noop", *[on(WORKER, "a%d" % i) for i in range(3)])
  assert signals(on(WORKER, "b", noop), on(WORKER, "c", noop)) == [
    ("noop", WORKER, PS[0]), ("noop", PS[0], WORKER)]


def test_a_noop_stays_where_more_would_cross_without_it(graph):
  noop = on(PS[0], "noop", on(PS[0], "a"), on(PS[1], "b"))
  assert signals(on(WORKER, "c", noop), on(WORKER, "d", noop)) == [
    ("b", PS[1], PS[0]), ("noop", PS[0], WORKER)]


def test_a_noop_stays_where_it_is_fetched(graph):
  noop = on(WORKER, "noop", on(PS[0], "a"))
  assert signals(noop, on(PS[0], "b", noop)) == [("a", PS[0], WORKER), ("noop", WORKER, PS[0])]
