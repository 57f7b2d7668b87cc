from __future__ import annotations

import contextlib
import copy
import json
import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tests.state import barrier_tasks
from tf1ps.cluster import session as session_lib
from tf1ps.compat import worker_service
from tf1ps.state import barrier, containers, queue_call, queue_errors

_built = {}  # (graph, barrier) by index and options: to build one takes longer than most tests


class Member:
  """A barrier and a session, as a process has them."""

  def __init__(self, ps, num_tasks, index, at=None, **options):
    key = repr((num_tasks, index, sorted(options.items())))
    if key not in _built:
      with tf.Graph().as_default() as graph:
        _built[key] = graph, barrier.Barrier("barrier", num_tasks, index, device=ps.name, **options)
    self.graph, built = _built[key]
    self.barrier = copy.copy(built)  # as another process has it, which knows nothing yet
    self.barrier._start_over()
    self.target = "grpc://" + (at or ps.address)
    self.session = session_lib.BoundedSession(self.target, self.graph)

  def connect_again(self):
    self.session.close()
    self.session = session_lib.BoundedSession(self.target, self.graph)

  def come(self):
    """Comes and looks once; returns the order, or None if somebody is missing."""
    try:
      return self.barrier.wait(self.session, timeout=0)
    except barrier.BarrierTimeout:
      return None


@pytest.fixture
def member(ps):
  """Makes members of a barrier that nobody has come to; closes their sessions."""
  worker_service.cleanup_all(ps.address, ["ps", "b.1", "b.2", containers.CONTROL], harness.LIMIT)
  made = []

  def make(index, num_tasks=3, **options):
    made.append(Member(ps, num_tasks, index, **options))
    return made[-1]

  yield make
  for one in made:
    one.session.close()


def meet(*members):
  """Has members come in this order, and look again until all have gone on; returns their orders."""
  orders = {}
  for _ in range(6):
    for one in members:
      if one not in orders:
        order = one.come()
        if order is not None:
          orders[one] = order
  return [orders.get(one) for one in members]


@contextlib.contextmanager
def waiting(*members):
  """Has members wait in threads; the list that it yields has their orders at the end."""
  orders = [None] * len(members)

  def wait(i):
    orders[i] = members[i].barrier.wait(members[i].session, 60.0)

  threads = [threading.Thread(target=wait, args=(i,)) for i in range(len(members))]
  for thread in threads:
    thread.start()
  try:
    yield orders
  finally:
    for thread in threads:
      thread.join()


@pytest.mark.slow
def test_all_learn_the_order_of_arrival_round_by_round(member):
  a, b, c = (member(i) for i in range(3))
  assert meet(c, a, b) == [[2, 0, 1]] * 3
  assert meet(b, c, a) == [[1, 2, 0]] * 3
  assert meet(a, b, c) == [[0, 1, 2]] * 3
  assert [one.barrier.rounds for one in (a, b, c)] == [3, 3, 3]


@pytest.mark.slow
def test_nobody_passes_before_the_last(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  for _ in range(3):
    assert a.come() is None and b.come() is None
  assert c.come() == [0, 1, 2]
  # The fast one is a round ahead; who is slow still passes the one before, and only that.
  assert c.come() is None
  assert a.come() == [0, 1, 2] and a.come() is None
  assert b.come() == [0, 1, 2] and b.come() == [2, 0, 1]


@pytest.mark.slow
def test_a_timeout_names_who_is_missing_and_loses_nothing(member):
  a, b = member(0), member(1, names=["chief", "left", "right"])
  with pytest.raises(barrier.BarrierTimeout) as raised:
    a.barrier.wait(a.session, timeout=0.05)
  assert (raised.value.missing, raised.value.names) == (
    [1, 2], ["/job:worker/task:1", "/job:worker/task:2"])
  assert str(raised.value).endswith(
    "1 of 3 arrived within 0.05 s; missing: /job:worker/task:1, /job:worker/task:2")
  with pytest.raises(queue_errors.QueueTimeout, match="2 of 3 arrived within 0 s; missing: right$"):
    b.barrier.wait(b.session, timeout=0)
  with pytest.raises(barrier.BarrierTimeout) as raised:
    a.barrier.wait(a.session, timeout=0)
  assert raised.value.missing == [2]
  assert meet(member(2), a, b) == [[0, 1, 2]] * 3


@pytest.mark.slow
def test_a_ps_that_did_not_answer_costs_no_round(member, start, set_timing):
  """The run that was left behind may take tokens, so the member asks for them again."""
  jobs = {"ps": harness.addresses(1)}
  server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  a, b = (member(i, 2, at=jobs["ps"][0]) for i in range(2))
  assert meet(a, b) == [[0, 1]] * 2
  assert b.come() is None
  assert a.barrier.queues[0].drain(a.session)[-1][:2].tolist() == [1, 1]  # such a run took it
  server.signal(signal.SIGSTOP)
  set_timing(queue_call, answer_limit=0.1)
  with pytest.raises(queue_errors.QueueUnanswered):
    a.come()
  set_timing(queue_call, answer_limit=harness.LIMIT)
  server.signal(signal.SIGCONT)
  assert meet(a, b) == [[1, 0]] * 2


def test_a_barrier_of_one(member):
  one = member(0, num_tasks=1)
  assert [one.come(), one.come()] == [[0], [0]]


@pytest.mark.slow
def test_who_is_restarted_joins_the_round_that_the_others_are_in(member):
  a, b, c = (member(i) for i in range(3))
  for _ in range(4):
    meet(a, b, c)
  assert b.come() is None  # b waits for the fifth time
  c = member(2)
  assert c.come() is None  # and a has not come yet
  assert meet(a, b, c) == [[1, 2, 0]] * 3
  assert [one.barrier.rounds for one in (a, b, c)] == [5, 5, 5]
  assert meet(c, b, a) == [[2, 1, 0]] * 3


@pytest.mark.slow
def test_who_is_restarted_before_anybody_came_again(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  meet(a, b, c)
  a, b = member(0), member(1)
  assert meet(a, b) == [None, None]
  assert meet(c, a, b) == [[0, 1, 2]] * 3
  assert [one.barrier.rounds for one in (a, b, c)] == [3, 3, 3]


@pytest.mark.slow
def test_what_a_killed_member_had_taken_comes_again(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  assert a.come() is None and b.come() is None
  assert c.barrier.queues[2].drain(c.session)  # takes the tokens of a and b, and is killed
  c = member(2)
  assert meet(c, a, b) == [[0, 1, 2]] * 3
  assert meet(c, a, b) == [[2, 0, 1]] * 3


@pytest.mark.slow
def test_who_was_killed_while_it_came(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  assert a.come() is None
  c.barrier.queues[0].put(c.session, [1, 2, 10 ** 16])  # only a hears it
  assert meet(b, a)[1] is not None  # a goes on
  assert a.come() is None
  c = member(2)
  orders = meet(c, b, a)
  assert orders[0] is None and orders[1] is not None and orders[2] is None  # b is in the next one
  assert meet(b, a, c) == [[0, 2, 1]] * 3
  assert [one.barrier.rounds for one in (a, b, c)] == [3, 3, 3]


@pytest.mark.slow
def test_what_an_older_run_left_is_cleared(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  meet(a, b, c)
  assert a.come() is None and b.come() is None  # and there the run ended
  a, b, c = (member(i) for i in range(3))
  a.barrier.clear(a.session)
  assert meet(c, a, b) == [[2, 0, 1]] * 3
  assert [one.barrier.rounds for one in (a, b, c)] == [1, 1, 1]


@pytest.mark.slow
def test_who_waits_tells_a_restarted_one_where_it_is(member):
  a, b, c = (member(i) for i in range(3))
  meet(a, b, c)
  c.barrier.clear(c.session)  # what was said more than once
  with waiting(a, b) as orders:
    tokens = c.barrier.queues[2]
    with c.graph.as_default():
      size = tokens.size()
    harness.wait_until(lambda: c.session.run(size) == 2)
    tokens.drain(c.session)  # c takes them, and is killed
    c = member(2)
    order = c.barrier.wait(c.session, 60.0)
  assert sorted(order) == [0, 1, 2] and order[2] == 2 and c.barrier.rounds == 2
  assert orders == [order, order]


@pytest.mark.slow
def test_a_reset_says_so_and_new_sessions_go_on(member, ps):
  a, b = (member(i, num_tasks=2, container="b.1") for i in range(2))
  meet(a, b)
  assert a.come() is None
  worker_service.cleanup_all(ps.address, ["b.1"], harness.LIMIT)
  for one in (a, b):
    with pytest.raises(queue_errors.QueueReset, match="container b.1 was reset"):
      one.come()
    one.connect_again()
  assert sorted(meet(b, a)[0]) == [0, 1]
  assert meet(b, a) == [[1, 0]] * 2
  assert (a.barrier.rounds, b.barrier.rounds) == (3, 3)


def test_the_queues_live_together_in_the_given_container(member, ps):
  one = member(0, container="b.2").barrier
  assert {(queue.device, queue.container) for queue in one.queues} == {(ps.name, "b.2")}


@pytest.mark.parametrize("arguments, said", [
  (("", 2, 0), "a barrier needs a name"),
  (("b", 2, 2), "from 0 to num_tasks - 1, got 2 of 2"),
  (("b", 0, 0), "from 0 to num_tasks - 1, got 0 of 0"),
  (("b", 2, 0, ["only"]), r"as many names, got \['only'\]"),
])
def test_arguments_are_checked(arguments, said):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    barrier.Barrier(*arguments)


def test_every_wait_has_a_limit(member):
  for timeout in (None, -1, float("nan")):
    with pytest.raises(ValueError, match="0 or more, got"):
      member(0).barrier.wait(None, timeout)


# Processes.


def passed(task, number):
  """The report of a member's passing of a round: when it came, when it went, the order."""
  line = task.wait_for("passed [%d, " % number)
  return json.loads(line[len("passed "):])[1:]


def stays_in(task):
  """The round that a member stays in for want of member 1: it has said so twice running."""
  def said():
    last = harness.without_logs(task.lines)[-2:]
    return last[-1] if last[0] == last[-1] and last[0].startswith("missing [1] in ") else None

  return int(harness.wait_until(said).split()[-1])


@pytest.mark.slow
def test_three_processes_pass_ten_rounds_that_do_not_mix(start, ps):
  arguments = ["grpc://" + ps.address, "ten", 3]
  members = [start("member %d" % i, barrier_tasks.meet, *arguments, i, 10, 60.0) for i in range(3)]
  assert [one.wait() for one in members] == [0, 0, 0]
  for number in range(1, 11):
    came, went, orders = zip(*(passed(one, number) for one in members))
    assert max(came) <= min(went)
    assert orders[0] == orders[1] == orders[2] and sorted(orders[0]) == [0, 1, 2]


@pytest.mark.slow
def test_who_does_not_come_or_is_killed_is_named_and_may_come_later(start, ps):
  arguments = ["grpc://" + ps.address, "killed", 3]

  def run(index):
    return start("member %d" % index, barrier_tasks.meet, *arguments, index, 10 ** 6, 0.5)

  a, b = run(0), run(1)
  for one in (a, b):
    one.wait_for("missing [2] in 0")
  c = run(2)
  for one in (a, b, c):
    passed(one, 3)
  b.signal(signal.SIGKILL)
  number = stays_in(a)
  assert stays_in(c) in {number, number - 1}
  b = run(1)
  reports = [passed(one, number + 3) for one in (a, b, c)]
  assert max(came for came, _, _ in reports) <= min(went for _, went, _ in reports)
  assert reports[0][2] == reports[1][2] == reports[2][2]
