"""Resets: ours, and beside it what TensorFlow's own does, which a new TensorFlow may change."""
from __future__ import annotations

import functools
import signal
import threading
import time

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, server_tasks
from tests.state import reset_tasks
from tf1ps.cluster import parsing, probe
from tf1ps.cluster import session as session_lib
from tf1ps.compat import TIMING, worker_service
from tf1ps.state import containers, control, heartbeat, queue_errors, queues, reset, run

IS_1 = tf.__version__.startswith("1.")
GONE = {  # what a session that lives on finds of each kind of state after a reset
  "ref": "FailedPreconditionError", "resource": "FailedPreconditionError",
  "queue": "NotFoundError" if IS_1 else 0,  # 0: without a word a new one, which is empty
  "table": 0, "accumulator": "NotFoundError", "iterator": "NotFoundError"}
THERE = {"ref": 7, "resource": 7, "queue": 1, "table": 1, "accumulator": 1, "iterator": 7}


def serve(forks, jobs):
  """Starts the stock servers of a cluster; returns (cluster, processes)."""
  cluster = parsing.from_cluster_spec(jobs, "ps", 0)
  servers = [forks.start(task.name, cluster_tasks.serve, jobs, task.job, task.index)
             for task in cluster.tasks()]
  for server in servers:
    server.wait_for("up")
  return cluster, servers


@pytest.fixture(scope="module")
def cluster(forks):
  """Two ps and a worker, all stock servers."""
  made, servers = serve(forks, {"ps": harness.addresses(2), "worker": harness.addresses(1)})
  yield made
  for server in servers:
    server.kill()


@pytest.fixture
def clean(cluster):
  """The same cluster, whose servers keep nothing."""
  for task in cluster.tasks():
    worker_service.cleanup_all(
      task.address, ["jobs/a", "jobs/b", task.job, containers.CONTROL], harness.LIMIT)
  return cluster


@pytest.fixture
def pair(forks):
  """Two ps that may be stopped or killed: (cluster, processes)."""
  made, servers = serve(forks, {"ps": harness.addresses(2)})
  yield made, servers
  for server in servers:
    server.kill()


def target_of(task):
  return "grpc://" + task.address


class State:
  """State of each kind in a container of a task."""

  def __init__(self, container, device="/job:ps/task:0"):
    self._device = device
    self.graph = tf.Graph()
    with self.graph.as_default(), tf.device(device), tf.container(container):
      ref, resource = [tf.get_variable(kind, initializer=7, use_resource=kind == "resource")
                       for kind in ("ref", "resource")]
      queue = tf.queue.FIFOQueue(9, tf.int32, [], shared_name="queue")
      table = tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.int64, shared_name="table", container=container)
      accumulator = tf.ConditionalAccumulator(tf.float32, [], shared_name="accumulator")
      iterator = tf.data.make_initializable_iterator(
        tf.data.Dataset.from_tensors(7).repeat(), shared_name="iterator")
      one = tf.constant(1, tf.int64)
      self.fill = [ref.initializer, resource.initializer, queue.enqueue(1),
                   tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=one, values=one),
                   accumulator.apply_grad(1.0), iterator.initializer]
      self.touch = {
        "ref": ref + 0, "resource": resource + 0, "queue": queue.size(),
        "table": tf.raw_ops.LookupTableSizeV2(table_handle=table),
        "accumulator": accumulator.num_accumulated(), "iterator": iterator.get_next()}

  def open(self, task):
    config = tf.ConfigProto(device_filters=[self._device, task.name])
    return session_lib.BoundedSession(target_of(task), self.graph, config)

  def found(self, session):
    """{kind: its value, or the type of the error}."""
    return {kind: _try(session, op) for kind, op in self.touch.items()}


def _try(session, op):
  try:
    return session.run(op)
  except tf.errors.OpError as error:
    return type(error).__name__


@pytest.mark.parametrize("how", ["ours", "stock"])
def test_what_sessions_of_the_same_and_of_another_master_find_afterwards(clean, how):
  one, other = State("jobs/a"), State("jobs/b")
  opened = [state.open(task) for state in (one, other) for task in clean.ps]
  for session, state in zip(opened, (one, one, other, other)):
    if state.found(session) != THERE:
      session.run(state.fill)
  try:
    assert [one.found(opened[0]), one.found(opened[1])] == [THERE, THERE]
    if how == "ours":
      reset.reset_containers(clean, ["jobs/a"])
    else:
      tf.Session.reset(target_of(clean.ps[0]), ["jobs/a"])
    aborted = dict.fromkeys(GONE, "AbortedError")
    if how == "stock":  # it ends every session of its master, whatever that is about
      assert one.found(opened[0]) == other.found(opened[2]) == aborted
    assert one.found(opened[1]) == GONE
    assert other.found(opened[3]) == THERE
    if how == "ours":
      # As before, but for what a session of another master has made anew meanwhile.
      assert one.found(opened[0]) == GONE
      assert other.found(opened[2]) == THERE
      opened[0].run(one.fill[:2])
      assert [one.found(session)["ref"] for session in opened[:2]] == [7, 7]
  finally:
    for session in opened:
      session.close()


def test_a_reader_that_is_touched_after_a_reset(pair):
  cluster, servers = pair
  with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    reader = tf.raw_ops.IdentityReaderV2(container="jobs/a", shared_name="reader")
    count = tf.raw_ops.ReaderNumRecordsProducedV2(reader_handle=reader)
  session = session_lib.BoundedSession(target_of(cluster.ps[1]), graph)
  try:
    assert session.run(count) == 0
    reset.reset_containers(cluster, ["jobs/a"])
    if IS_1:
      assert _try(session, count) == "NotFoundError"
      assert servers[0].is_running
    else:
      threading.Thread(target=_try, args=(session, count), daemon=True).start()
      assert servers[0].wait() < 0  # stock: the ps dies by a signal
  finally:
    session.close()


@pytest.mark.slow
def test_queues_of_ours_say_that_their_container_was_reset(clean):
  def fill(session, made):
    for queue in made:
      queue.put(session, 5)

  with tf.Graph().as_default() as graph:
    made = [queues.FIFOQueue(9, tf.int32, [], shared_name=name, container=container,
                             device="/job:ps/task:1")
            for name, container in (("p", "jobs/a"), ("q", "jobs/a"), ("q", "jobs/b"))]
    taken = made[0].try_dequeue_many(1)
  opened = [session_lib.BoundedSession(target_of(task), graph) for task in clean.tasks()]
  for session in opened:
    fill(session, made)
  results = reset.reset_containers(clean, ["jobs/a"])
  assert [r.queues for r in results] == [[], ["jobs/a/p", "jobs/a/q"], []]
  for session in opened:
    for queue in made[:2]:
      said = "container jobs/a was reset: queue "
      with pytest.raises(queue_errors.QueueReset, match=said):
        queue.get(session, timeout=0)
      with pytest.raises(queue_errors.QueueReset, match=said):
        queue.put(session, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="container jobs/a was reset"):
      session.run(taken)
    assert made[2].get(session, timeout=0) == 5
  with tf.Session(target_of(clean.ps[0]), graph) as session:
    with pytest.raises(queue_errors.QueueEmpty):
      made[0].get(session, timeout=0)
    fill(session, made)
    assert made[0].get(session) == 5
  for session in opened:
    session.close()


@pytest.mark.slow
def test_the_default_container_bears_the_name_of_each_job(clean):
  states = [State("", task.name) for task in clean.tasks()] + [State("jobs/a")]
  opened = [state.open(clean.ps[0]) for state in states]
  for session, state in zip(opened, states):
    session.run(state.fill)
  results = reset.reset_containers(clean, ["default"])
  assert [(r.task, r.containers, r.queues, r.error) for r in results] == [
    (task, [task.job], [], "") for task in clean.tasks()]
  assert [state.found(session)["ref"] for session, state in zip(opened, states)] == (
    ["FailedPreconditionError"] * 3 + [7])
  for session in opened:
    session.close()


@pytest.mark.parametrize("names, text", [
  ([], "names must be a list of container names, got \\[\\]. A reset without a name"),
  (None, "must be a list"), ("jobs/a", "must be a list of container names, got 'jobs/a'"),
  ([""], 'TensorFlow clears nothing for the container "": .* Use "default" for that of each task'),
  (["jobs/a", "localhost"], 'nothing for the container "localhost": .* Use "default" for it'),
  ([containers.CONTROL], "where the run and the heartbeats live"),
  (["jobs/a", "my_problem_1"], "container 'my_problem_1' has '_' at position 2: .*'my-problem-1'"),
])
def test_names_that_cannot_be_meant_are_refused_before_anything_is_done(clean, names, text):
  state = State("jobs/a")
  with state.open(clean.ps[0]) as session:
    session.run(state.fill)
    with pytest.raises(ValueError, match=text):
      reset.reset_containers(clean, names)
    assert state.found(session) == THERE


@pytest.mark.parametrize("name", ["", "localhost"])
def test_stock_clears_nothing_for_what_is_refused(clean, name):
  state = State("")
  with state.open(clean.ps[1]) as session:
    session.run(state.fill)
    tf.Session.reset(target_of(clean.ps[0]), [name])
    assert state.found(session) == THERE


def test_a_timeout_must_be_positive(cluster):
  with pytest.raises(ValueError, match="timeout must be a positive number of seconds, got 0"):
    reset.reset_containers(cluster, ["jobs/a"], timeout=0)


def test_control_records_stay_and_the_run_is_not_initialised_any_more(clean):
  live = run.RunRecord("1", True, False, False, {}, [], 1)
  tables = [control.ControlTable(target_of(task), task, task) for task in clean.ps]
  for table in tables:
    run.write_run(table, "jobs/a", live)
    run.write_run(table, "jobs/b", live)
    run.write_run(table, "", live._replace(ended=True))
    table.put({"member:worker:0": {"step": 3}})
  before = reset.reset_notice(tables[0].read(), "jobs/a")
  reset.reset_containers(clean, ["jobs/a", "default"])
  found = [table.read() for table in tables]
  for records in found:
    assert run.find_run(records, "jobs/a") == live._replace(initialised=False)
    assert run.find_run(records, "jobs/b") == live
    assert run.find_run(records, "") == live._replace(ended=True)
    assert records["member:worker:0"].value == {"step": 3}
  first = reset.reset_notice(found[0], "jobs/a")
  assert before == reset.reset_notice(found[0], "jobs/b") == ("", True)
  assert first.done and first.token and reset.reset_notice(found[0], "").token
  reset.reset_containers(clean, ["jobs/a"])
  second = reset.reset_notice(tables[0].read(), "jobs/a")
  assert second.done and second.token != first.token
  for table in tables:
    run.write_run(table, "", live)
  reset.reset_containers(clean, ["ps"])  # as TensorFlow calls the default container
  records = tables[0].read()
  assert run.find_run(records, "") == live._replace(initialised=False)
  assert reset.reset_notice(records, "").token not in (first.token, second.token)
  for table in tables:
    table.close()


def test_a_reset_lets_the_cancelled_steps_of_a_job_end(clean, set_timing):
  # A ps that clears a ref variable under such a step hangs or dies.
  table = control.ControlTable(target_of(clean.ps[0]), clean.ps[0], clean.ps[0])
  beat = heartbeat.Heartbeat(table, clean.chief, "chief", "jobs/a", 60.0)
  beat.beat()
  set_timing(reset, alive_within=harness.LIMIT, cancelled_step_limit=1000.0)
  reset.reset_containers(clean, ["jobs/b"])  # there is no job: no test lasts for that limit
  set_timing(reset, cancelled_step_limit=TIMING.cancelled_step_limit)
  began = time.monotonic()
  reset.reset_containers(clean, ["jobs/a"])
  assert time.monotonic() - began > TIMING.cancelled_step_limit
  beat.stop()


@pytest.mark.slow
def test_a_task_that_stands_still_or_is_gone_keeps_nobody(pair, monkeypatch):
  cluster, servers = pair
  states = [State("jobs/a", task.name) for task in cluster.ps]

  def reset_without(gone):
    there = 1 - gone
    session = states[there].open(cluster.ps[there])
    session.run(states[there].fill)
    # It takes the limit of the one that is gone; the other one has its time, on a busy machine.
    monkeypatch.setattr(reset, "probe_task", lambda task, timeout: probe.probe_task(
      task, 1.0 if task == cluster.ps[gone] else timeout))
    with pytest.raises(reset.ResetError) as raised:
      reset.reset_containers(cluster, ["jobs/a"], timeout=harness.LIMIT)
    assert states[there].found(session)["ref"] == "FailedPreconditionError"
    session.close()
    assert [bool(r.error) for r in raised.value.results] == [i == gone for i in range(2)]
    begin = "not cleared: %s at %s (" % (cluster.ps[gone].name, cluster.ps[gone].address)
    assert str(raised.value).startswith(begin)
    assert str(raised.value).endswith("); cleared: " + cluster.ps[there].name)
    return str(raised.value)[len(begin):]

  for gone in range(2):
    servers[gone].signal(signal.SIGSTOP)
    assert reset_without(gone).startswith("silent")
    servers[gone].signal(signal.SIGCONT)
  servers[1].kill()
  assert reset_without(1).startswith("refused")


def test_stock_waits_for_a_task_that_stands_still(pair, start):
  """Only the sessions' limit ends it, and nothing is said of who was missing."""
  cluster, servers = pair
  servers[1].signal(signal.SIGSTOP)
  stock = start("stock", reset_tasks.reset_stock, target_of(cluster.ps[0]), ["jobs/a"], 1.0)
  assert stock.wait_for("ended:") == "ended: DeadlineExceededError"


@pytest.mark.slow
def test_the_target_of_a_server_that_knows_its_cluster(start):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  ps = start("ps", server_tasks.join, jobs, "ps", 0, {"persistent": True})
  ps.wait_for("joins")
  worker = start("worker", reset_tasks.reset_own, jobs, ["jobs/a", "default"])
  assert worker.wait_for("cleared") == (
    "cleared [['/job:ps/task:0', ['jobs/a', 'ps']], ['/job:worker/task:0', ['jobs/a', 'worker']]]")
  results = harness.wait_until(lambda: _reset_at("grpc://" + jobs["ps"][0]))
  assert [r.task.name for r in results] == ["/job:ps/task:0", "/job:worker/task:0"]
  with pytest.raises(ValueError, match="cluster of /job:worker/task:0 at grpc://%s is not known: "
                     "it is not a ps that tf1ps started" % jobs["worker"][0]):
    reset.reset_containers("grpc://" + jobs["worker"][0], ["jobs/a"])


def _reset_at(target):
  """The results, or None where the ps has not told its cluster yet."""
  try:
    return reset.reset_containers(target, ["jobs/a"])
  except ValueError:
    return None


def test_a_target_that_tells_no_cluster(clean):
  with pytest.raises(ValueError, match="is not known: .* Give the cluster instead"):
    reset.reset_containers(target_of(clean.ps[0]), ["jobs/a"])
  nobody = harness.addresses(1)[0]
  with pytest.raises(ValueError, match="no TensorFlow server answers at %s" % nobody):
    reset.reset_containers("grpc://" + nobody, ["jobs/a"])
  for target in ("", "127.0.0.1:1", None):
    with pytest.raises(ValueError, match="target must be a cluster or begin with grpc://"):
      reset.reset_containers(target, ["jobs/a"])


def wait_until_blocked(task, container, name):
  """Waits until a dequeue_many holds all that there is in a queue, which has no size then."""
  with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"), tf.container(container):
    size = tf.queue.FIFOQueue(20, tf.int32, [], shared_name=name).size()
  with session_lib.BoundedSession(target_of(task), graph) as session:
    harness.wait_until(lambda: session.run(size) == 0)


@pytest.mark.slow
@pytest.mark.parametrize("master", [0, 1])
def test_foreign_queues_that_are_named_are_closed_first(pair, start, master):
  cluster, servers = pair
  blocked = start("blocked", reset_tasks.block, target_of(cluster.ps[master]), "jobs/a", 2)
  blocked.wait_for("blocks")
  wait_until_blocked(cluster.ps[0], "jobs/a", "stock")
  results = reset.reset_containers(cluster, ["jobs/a"], queues=["stock", "not-there"])
  assert [r.queues for r in results] == [["jobs/a/stock"], []]
  assert blocked.wait_for("told:") == "told: OutOfRangeError"
  assert blocked.wait() == 0
  assert servers[0].is_running
  assert reset.reset_containers(cluster, ["jobs/a"], queues=["stock"])[0].queues == []


@pytest.mark.parametrize("master", [0, 1])
def test_stock_reset_under_a_blocked_dequeue(pair, start, master):
  """Of its own master: 2.21's ps dies. Of another: it stays blocked on what is no more."""
  cluster, servers = pair
  blocked = start("blocked", reset_tasks.block, target_of(cluster.ps[0]), "jobs/a", 2)
  blocked.wait_for("blocks")
  wait_until_blocked(cluster.ps[0], "jobs/a", "stock")
  stock = start("stock", reset_tasks.reset_stock, target_of(cluster.ps[master]), ["jobs/a"],
                harness.LIMIT)
  if IS_1:
    assert stock.wait_for("ended:") == "ended: ok"
    if not master:
      assert blocked.wait_for("told:") == "told: CancelledError"
    blocked.kill()
    assert probe.probe_task(cluster.ps[0], harness.LIMIT).is_up
  else:
    if master:
      assert stock.wait_for("ended:") == "ended: ok"
      assert servers[0].is_running
      blocked.kill()
    assert servers[0].wait() < 0


@pytest.mark.parametrize("master", [0, 1])
def test_a_queue_of_ours_that_only_stock_operations_use_is_closed_too(pair, master):
  cluster, servers = pair
  with tf.Graph().as_default() as graph:
    queue = reset_tasks.make_queue("jobs/a", "stock")
    fill, take = queue.enqueue_many([[1, 2, 3]]), queue.dequeue_many(4)
  session = session_lib.BoundedSession(target_of(cluster.ps[master]), graph)
  session.run(fill)
  outcome = []
  blocked = threading.Thread(target=lambda: outcome.append(_try(session, take)), daemon=True)
  blocked.start()
  wait_until_blocked(cluster.ps[0], "jobs/a", "stock")
  assert [r.queues for r in reset.reset_containers(cluster, ["jobs/a"])] == [["jobs/a/stock"], []]
  blocked.join(60.0)
  assert outcome == ["OutOfRangeError"]
  session.close()
  assert servers[0].is_running


def test_two_resets_at_one_time_share_no_variable():
  """It would have its operation's name on the task: one reset would close the other's queues."""
  with tf.Graph().as_default() as graph:
    reset._close_queue("jobs/a", "q")
  assert not {"Variable", "VariableV2", "VarHandleOp"} & {op.type for op in graph.get_operations()}


@pytest.mark.slow
@pytest.mark.parametrize("is_held", [False, True], ids=["a short step", "a step without end"])
@pytest.mark.parametrize("container, name, real", [
  ("jobs/a", "jobs/a", "jobs/a"), ("", "default", "ps"), ("ps", "default", "ps")])
def test_a_reset_lets_a_step_in_progress_end_first(pair, is_held, container, name, real):
  """Between the look and the dequeue of one step the queue must not become a new, empty one."""
  cluster, servers = pair
  with tf.Graph().as_default() as graph:
    queue = reset_tasks.make_queue(container)
    with tf.device("/job:ps/task:0"), tf.container("jobs/b"):
      entered, gate = [tf.queue.FIFOQueue(5, tf.int32, [], shared_name=one)
                       for one in ("entered", "gate")]

    def look_then_take():
      size = queue.size()
      with tf.control_dependencies([size, entered.enqueue(1)]):
        opened = gate.dequeue()
      with tf.control_dependencies([opened]):
        return [size, queue.dequeue_many(2)]

    step, has_entered, go_on = queue._guard.step(look_then_take), entered.size(), gate.enqueue(1)
  outcome = []
  sessions = [session_lib.BoundedSession(target_of(task), graph) for task in cluster.ps]
  for session in sessions:
    queue.put(session, 1)
  stepping = threading.Thread(target=lambda: outcome.append(_try(sessions[0], step)), daemon=True)
  stepping.start()
  harness.wait_until(lambda: sessions[1].run(has_entered) == 1)
  results = []
  resetting = threading.Thread(
    target=lambda: results.append(reset.reset_containers(cluster, [name])), daemon=True)
  resetting.start()
  resetting.join(60.0 if is_held else 1.0)
  if is_held:
    assert [result.queues for result in results[0]] == [["%s/q" % real], []]
  else:
    assert not results
  sessions[1].run(go_on)
  stepping.join(60.0)
  if not is_held:
    assert [part.tolist() for part in outcome[0]] == [2, [1, 1]]
    resetting.join(60.0)
    assert [result.queues for result in results[0]] == [["%s/q" % real], []]
  for session in sessions:
    with pytest.raises(queue_errors.QueueReset):
      queue.get(session, timeout=0)
    session.close()
  assert servers[0].is_running


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_resets_while_callers_wait_and_four_clients_go_on(clean, start):
  masters = [clean.ps[0], clean.ps[1]]
  incarnations = [
    probe.probe_task(task, harness.LIMIT).incarnation for task in clean.tasks()]
  clients = [start("client %d" % i, reset_tasks.use, target_of(masters[i % 2]), "jobs/a")
             for i in range(4)]
  callers = [WaitingCaller(task) for task in masters]
  for client in clients:
    client.wait_for("works")
  for _ in range(8):
    for caller in callers:
      caller.begin()
    told = [client.output.count("reset:") for client in clients]
    # At load 34 the reset's session took 5 s to begin, and its steps on the queues less than 1.
    results = reset.reset_containers(clean, ["jobs/a"], timeout=30.0)
    assert results[0].queues == ["jobs/a/" + name for name in ("empty", "held-0", "held-1", "q")]
    for caller in callers:
      assert caller.end() == ("QueueReset", "OutOfRangeError")
      assert "container jobs/a was reset: queue empty and its elements are lost" in caller.text
    for client, before in zip(clients, told):
      harness.wait_until(functools.partial(_goes_on, client, before), 60,
                         functools.partial("that {0.name} goes on:\n{0.output}\n".format, client))
  for client in clients:
    assert client.is_running
    assert all("container jobs/a was reset: queue q and its elements are lost" in line
               for line in client.lines if line.startswith("reset:"))
  assert incarnations == [
    probe.probe_task(task, harness.LIMIT).incarnation for task in clean.tasks()]


def _goes_on(client, before):
  """Whether a client has been told of more resets than before, and uses the queue again."""
  return client.output.count("reset:") > before and client.last_line == "works"


class WaitingCaller:
  """Waits in a `get` of ours, and in a stock dequeue_many, through one master."""

  def __init__(self, task):
    self._target = target_of(task)
    self._task = task
    with tf.Graph().as_default() as self._graph:
      self._held = reset_tasks.make_queue("jobs/a", "held-%d" % task.index)
      self._many = self._held.dequeue_many(4)
      self._empty = reset_tasks.make_queue("jobs/a", "empty")
      self._none = self._empty.try_dequeue_many(1).count  # it registers the queue

  def begin(self):
    """Returns when both wait."""
    self._session = tf.Session(self._target, graph=self._graph)
    self._outcomes = [None, None]
    self._held.put(self._session, [1, 2, 3], many=True)
    assert self._session.run(self._none) == 0
    calls = [lambda: self._empty.get(self._session), lambda: self._session.run(self._many)]
    self._threads = [threading.Thread(target=self._call, args=item, daemon=True)
                     for item in enumerate(calls)]
    for thread in self._threads:
      thread.start()
    wait_until_blocked(self._task, "jobs/a", "held-%d" % self._task.index)

  def end(self):
    """The types of the errors that ended both."""
    for thread in self._threads:
      thread.join(60)
      assert not thread.is_alive()
    self._session.close()
    self.text = str(self._outcomes[0])
    return tuple(type(outcome).__name__ for outcome in self._outcomes)

  def _call(self, index, function):
    try:
      self._outcomes[index] = function()
    except Exception as error:
      self._outcomes[index] = error
