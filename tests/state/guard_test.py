from __future__ import annotations

import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tests.state import reset_tasks
from tf1ps.cluster import session as session_lib
from tf1ps.cluster.description import Task
from tf1ps.compat import worker_service
from tf1ps.state import containers, guard

SOON = tf.RunOptions(timeout_in_ms=500)  # for what would wait for ever
IN_TIME = tf.RunOptions(timeout_in_ms=60000)  # for what is done at once


@pytest.fixture(scope="module")
def masters(forks):
  """The targets of two ps."""
  jobs = {"ps": harness.addresses(2)}
  servers = [forks.start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for server in servers:
    server.wait_for("up")
  yield ["grpc://" + address for address in jobs["ps"]]
  for server in servers:
    server.kill()


@pytest.fixture
def ps(masters):
  """The first of them, as a task that keeps nothing in the containers of these tests."""
  task = Task("ps", 0, masters[0][len("grpc://"):])
  worker_service.cleanup_all(task.address, ["jobs/a", "jobs/b", containers.CONTROL], harness.LIMIT)
  return task


def make(name="g", description="d", container="jobs/a", device=""):
  """A guard beside a queue, in the default graph."""
  with tf.device(device), tf.container(container):
    op = tf.queue.FIFOQueue(5, tf.int32, [], shared_name=name or None).queue_ref.op
  return guard.Guard(op, guard.Label.of(op, "thing", name, {"is": description}))


def one():
  return [tf.constant(1)]


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_what_a_step_reads_and_writes_is_indivisible(masters, ps, guarded):
  if guarded:
    assert count_together(masters, ps, guarded) == 400
  else:  # as a rule it loses many the first time; but a busy machine may run one after the other
    assert any(count_together(masters, ps, guarded) < 400 for _ in range(10))


def count_together(masters, ps, guarded):
  """Counts to 200 by each of two masters at the same time; returns the sum."""
  def count(target, ready):
    with tf.Graph().as_default() as graph:
      with tf.device(ps.name), tf.container("jobs/a"):
        counter = tf.get_variable("counter", [], tf.int32, tf.zeros_initializer(),
                                  use_resource=True)

      def step():
        value = counter.read_value()
        with tf.control_dependencies([value]):  # takes its time between the two
          work = tf.matmul(*[tf.random_uniform([200, 200]) for _ in range(2)])
        with tf.control_dependencies([work]):
          return [_add_one(counter, value)]

      results = make(device=ps.name).step(step) if guarded else step()
    with session_lib.BoundedSession(target, graph) as session:
      if target == masters[0]:
        session.run(counter.initializer)
      ready.wait(60)
      for _ in range(200):
        session.run(results)
      ready.wait(60)
      totals.append(session.run(counter))

  totals = []
  ready = threading.Barrier(2)
  threads = [threading.Thread(target=count, args=(target, ready)) for target in masters]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert totals[0] == totals[1]
  return totals[0]


def _add_one(counter, value):
  with tf.control_dependencies([counter.assign(value + 1, read_value=False)]):
    return tf.identity(value)


def test_inputs_are_computed_before_the_lock_is_taken():
  go_on, began = threading.Event(), threading.Event()

  def wait():
    began.set()
    assert go_on.wait(60)
    return np.int32(3)

  with tf.Graph().as_default():
    made = make()
    value = tf.py_func(wait, [], tf.int32)
    slow, quick = made.step(lambda: [value + 1], [value]), made.step(one)
    with tf.Session() as session:
      results = []
      thread = threading.Thread(target=lambda: results.append(session.run(slow)))
      thread.start()
      assert began.wait(60)
      assert session.run(quick, options=IN_TIME) == [1]
      go_on.set()
      thread.join()
      assert results == [[4]]


def test_a_step_that_fails_frees_the_lock():
  with tf.Graph().as_default():
    made = make()

    def fail():
      with tf.control_dependencies([tf.Assert(tf.constant(False), ["on purpose"])]):
        return one()

    failing, good = made.step(fail), made.step(one)
    with tf.Session() as session:
      for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="on purpose"):
          session.run(failing)
        assert session.run(good, options=IN_TIME) == [1]


@pytest.mark.parametrize("how", ["py_func", "ps"])
def test_a_client_that_is_killed_in_a_step_frees_the_lock(forks, start, how):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  start("ps", cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  holder = start("holder", reset_tasks.block_in_step, jobs, how)
  with tf.Graph().as_default() as graph:
    step = reset_tasks.make_guard("jobs/a", "held").step(one)
    with tf.device("/job:ps/task:0"), tf.container("jobs/b"):
      entered = tf.queue.FIFOQueue(5, tf.int32, [], shared_name="entered").size()
  config = tf.ConfigProto(device_filters=["/job:ps/task:0"])
  with session_lib.BoundedSession("grpc://" + jobs["ps"][0], graph, config) as session:
    if how == "ps":
      harness.wait_until(lambda: session.run(entered) == 1)
    else:
      holder.wait_for("inside")
    holder.kill()
    # Nobody has waited for the lock before: a wait that is given up would free it, see below.
    assert session.run(step, options=IN_TIME) == [1]


def test_tensorflow_frees_a_lock_when_somebody_gives_up_to_wait_for_it(masters, ps):
  """A defect of TensorFlow's mutex: if this fails, it is fixed, and guard.py may say so."""
  with tf.Graph().as_default() as graph:
    with tf.device(ps.name), tf.container("jobs/b"):
      entered, goes_on = [tf.queue.FIFOQueue(5, tf.int32, [], shared_name=name)
                          for name in ("entered", "goes on")]

    def hold():
      with tf.control_dependencies([entered.enqueue(1)]):
        return [goes_on.dequeue()]

    made = make(name="held", device=ps.name)
    holding, step = made.step(hold), made.step(one)
    count, end = entered.size(), goes_on.enqueue(7)
  results = []
  with session_lib.BoundedSession(masters[0], graph) as session:
    thread = threading.Thread(target=lambda: results.append(session.run(holding)))
    thread.start()
    harness.wait_until(lambda: session.run(count) == 1)
    with pytest.raises(tf.errors.DeadlineExceededError):
      session.run(step, options=SOON)
    assert session.run(step, options=IN_TIME) == [1] and not results
    session.run(end)
    thread.join()
  assert results == [[7]]


def test_another_thing_under_the_name_is_refused_with_what_lives_there(masters, ps):
  with tf.Graph().as_default() as graph:
    first, second, other = [
      make(description=text, device=ps.name, container=container).step(one)
      for text, container in (("this", "jobs/a"), ("that", "jobs/a"), ("that", "jobs/b"))]
  with tf.Session(masters[0], graph) as session:
    assert session.run(first) == session.run(other) == [1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="tf1ps mismatch: .*this"):
      session.run(second)
  with tf.Session(masters[1], graph) as session:
    with pytest.raises(tf.errors.InvalidArgumentError, match="tf1ps mismatch: .*this"):
      session.run(second)
    assert session.run(first) == [1]


def test_sessions_of_both_masters_notice_a_reset(masters, ps):
  with tf.Graph().as_default() as graph:
    made = make(device=ps.name)
    step, quick, forget = made.step(one), made.step(one, may_be_first=False), made.forget()
  sessions = [session_lib.BoundedSession(target, graph) for target in masters]
  said = "container jobs/a was reset"
  for session in sessions:
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
      session.run(quick)  # it may not be a session's first
    assert session.run(step) == session.run(quick) == [1]
  for again in range(2):
    worker_service.cleanup_all(ps.address, ["jobs/a"], harness.LIMIT)
    if again:  # also when somebody has made it anew
      with tf.Session(masters[0], graph=graph) as session:
        assert session.run(step) == [1]
    for session in sessions:
      for op in (step, quick):
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
          session.run(op)
  for session in sessions:
    session.run(forget)
    assert session.run(step) == session.run(quick) == [1]
    session.close()


def test_a_thing_without_a_shared_name_is_private_to_its_session(masters, ps):
  with tf.Graph().as_default() as graph:
    made = make("", device=ps.name)
    step, register = made.step(one), made.entries()[0]
    assert made.title == "fifo_queue"
  found = []
  for target in masters:
    with tf.Session(target, graph=graph) as session:
      assert session.run(register) == b""
      assert session.run(step) == [1]
      found.append(session.run(register))
  assert found[0] != found[1]
  with tf.Graph().as_default() as graph:
    shared = make("g", device=ps.name).entries()[0]
  with tf.Session(masters[0], graph=graph) as session:
    assert session.run(shared) == b""


def test_the_register_and_the_note(masters, ps):
  with tf.Graph().as_default() as graph:
    made = make("g", "d", device=ps.name)
    step, register, state = made.step(one), made.entries()[0], made.read_state()
    write = made.write_state(tf.constant("over"))
  with tf.Session(masters[0], graph=graph) as session:
    session.run(step)
    found = [session.run(register), session.run(state)]
    session.run(write)
    assert (found[1], session.run(state)) == (b"", b"over")
  assert guard.descriptions([b"over", found[0], b""]) == [
    {"is": "d", "thing": "thing", "name": "g"}]
  assert found[0].split(b" ", 1)[0].isdigit()
  assert (made.title, made.container, made.device) == ("g", "jobs/a", ps.name)


def test_keys():
  # The first sixteen digits of `printf queue:q | sha256sum`.
  assert guard.register_key("queue", "q") == int(np.uint64(0x0cd86e2e0b63b5b6).astype(np.int64))
  assert len({guard.register_key("queue", "q"), guard.register_key("queue", "r"),
              guard.register_key("set", "q"), guard.state_key("queue", "q")}) == 4


def test_the_callers_control_dependencies_hold():
  with tf.Graph().as_default():
    made = make()
    value = tf.get_variable("value", initializer=1, use_resource=True)
    done = []
    say = tf.py_func(lambda: done.append("before") or np.int32(5), [], tf.int32)
    with tf.control_dependencies([value.assign(say, read_value=False)]):
      results = made.step(lambda: [value.read_value(), tf.py_func(
        lambda: done.append("step") or np.int32(0), [], tf.int32)])
    with tf.control_dependencies(results):
      last = tf.py_func(lambda: done.append("after") or np.int32(0), [], tf.int32)
    with tf.Session() as session:
      session.run(value.initializer)
      assert session.run(results + [last])[0] == 5
  assert done == ["before", "step", "after"]


def test_the_lock_is_free_after_each_result():
  """A result that is fetched alone is of a step that is over."""
  with tf.Graph().as_default():
    made = make()
    first = made.step(lambda: [tf.constant(1), tf.constant(2)])[0]
    with tf.Session() as session:
      for _ in range(20):
        assert session.run(first, options=IN_TIME) == 1
