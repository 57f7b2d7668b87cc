"""Each case of the table in docs/queues.md, on real servers."""
from __future__ import annotations

import itertools
import pathlib
import signal

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, session_tasks
from tests.state import after_table, queue_tasks
from tests.state.after_table import CANCEL, CLOSE, KILLED, RESET, SESSION, STOCK_RESET, TIMEOUT
from tf1ps.cluster.description import Cluster, Task
from tf1ps.state import reset

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "queues.md"
CALLS = after_table.STOCK + after_table.OURS
# Which one it is depends on whether the call was on its way or began afterwards.
SESSION_ERRORS = ["AbortedError", "CancelledError", "FailedPreconditionError", "RuntimeError"]
_numbers = itertools.count()


def start_ps(start):
  """Starts a ps of its own; returns its process and its task."""
  task = Task("ps", 0, harness.addresses(1)[0])
  return start("ps", cluster_tasks.serve, {"ps": [task.address]}, "ps", 0), task


@pytest.fixture(scope="module")
def ps(forks):
  process, task = start_ps(forks.start)
  process.wait_for("up")
  yield task
  process.kill()


# The first kind, and the one that differs in the table; the slow tests try the others.
@pytest.fixture(params=[
  kind if kind in ("FIFOQueue", "PriorityQueue") else pytest.param(kind, marks=pytest.mark.slow)
  for kind in after_table.KINDS])
def kind(request):
  return request.param


@pytest.fixture
def case(kind, ps):
  """The kind, and makes calls on queues of it, in a container of their own."""
  made = []

  def make(calls):
    made.append(queue_tasks.Waiting(*make.where, calls=calls))
    return made[-1]

  def begin():
    """From here on the calls are in another container."""
    make.container = "table.%d" % next(_numbers)
    make.where = "grpc://" + ps.address, ps.name, make.kind, make.container

  make.kind, make.begin = kind, begin
  begin()
  yield make
  for waiting in made:  # which may have a run on the ps that never ends
    for session in (waiting.session, waiting.aside):
      session_tasks.end_of(session.close, 5.0)


def waiting_calls(case):
  """Calls that all wait."""
  calls = case(CALLS)
  calls.fill()
  calls.begin()
  return calls


def ending(kind, event):
  """Those of the calls that end by the event."""
  return [call for call in CALLS
          if after_table.expected(call, kind, event)[1] != after_table.WAITS]


def check(calls, kind, event, outcomes):
  """Compares what is left, and what the callers saw, with the table."""
  left = calls.take_what_is_left()
  found = {name: (left[name], outcomes.get(name, after_table.WAITS)) for name in left}
  assert found == {name: after_table.expected(name, kind, event) for name in left}


@pytest.mark.slow
def test_after_a_timeout(case):
  # The time of a stock operation begins before TensorFlow has made it ready to run: on a busy
  # machine it may have done nothing by then.
  for timeout in (3.0, 30.0):
    calls = case(CALLS)
    calls.fill()
    if calls.begin(timeout=timeout):
      break
    case.begin()
  check(calls, case.kind, TIMEOUT, calls.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("event", [CLOSE, CANCEL])
def test_after_a_close(case, event):
  calls = waiting_calls(case)
  calls.close(event == CANCEL, ending(case.kind, event))
  check(calls, case.kind, event, dict(calls.outcomes))


@pytest.mark.slow
def test_after_the_session_was_closed(case):
  calls = waiting_calls(case)
  calls.session.close()
  calls.wait_for(CALLS)
  for name in after_table.OURS:
    assert calls.outcomes[name] in SESSION_ERRORS
    calls.outcomes[name] = after_table.ENDS
  check(calls, case.kind, SESSION, calls.outcomes)


@pytest.mark.slow
def test_after_the_client_was_killed(case, start):
  client = start("client", queue_tasks.wait_in_queues, *(case.where + (CALLS,)))
  calls = case(CALLS)
  client.wait_for("all wait")
  client.kill()
  calls.settle()
  check(calls, case.kind, KILLED, {name: after_table.GONE for name in CALLS})


@pytest.mark.slow
def test_after_a_reset_of_ours(case, ps):
  calls = waiting_calls(case)
  # Those that tf1ps did not make are in no list.
  reset.reset_containers(Cluster({"ps": {0: ps.address}}, "ps", 0), [case.container],
              queues=["q%d" % i for i, name in enumerate(CALLS) if name in after_table.STOCK])
  calls.wait_for(CALLS)
  check(calls, case.kind, RESET, calls.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("event", [after_table.AT_ONCE, CLOSE, CANCEL, RESET])
def test_what_never_waits(case, ps, event):
  calls = case(after_table.TRY)
  calls.fill()
  if event == RESET:
    reset.reset_containers(Cluster({"ps": {0: ps.address}}, "ps", 0), [case.container])
  elif event != after_table.AT_ONCE:
    calls.close(event == CANCEL, after_table.TRY)
  for name in after_table.TRY:
    calls.call(name)
  check(calls, case.kind, event, calls.outcomes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", after_table.KINDS[:1] + tuple(
  pytest.param(kind, marks=pytest.mark.slow) for kind in after_table.KINDS[1:]))
def test_after_a_stock_reset(start, kind):
  runs = [(call,) + start_ps(start) for call in after_table.STOCK]
  clients = []
  for call, process, task in runs:
    process.wait_for("up")
    clients.append(start("client", queue_tasks.wait_in_queues, "grpc://" + task.address, task.name,
                         kind, "table", [call]))
  for client in clients:
    client.wait_for("all wait")
  for _, _, task in runs:
    start("reset", queue_tasks.reset_stock, "grpc://" + task.address, "table")
  found = {}
  for (call, process, task), client in zip(runs, clients):
    harness.wait_until(
      lambda: not process.is_running or "ended:" in client.output, what=call)  # noqa: B023
    if not process.is_running or "UnavailableError" in client.output:
      assert process.wait() in (-signal.SIGSEGV, -signal.SIGABRT)
      found[call] = after_table.DIES, after_table.GONE
      continue
    calls = queue_tasks.Waiting("grpc://" + task.address, task.name, kind, "table", [call])
    calls.outcomes[call] = client.wait_for("ended:").split(": ")[1]
    found[call] = calls.take_what_is_left()[call], calls.outcomes[call]
    calls.session.close()
    calls.aside.close()
  version = tf.__version__.split(".")[0]
  assert found == {call: after_table.expected(call, kind, STOCK_RESET, version)
                   for call in after_table.STOCK}


def test_the_document_shows_the_table():
  text = DOCUMENT.read_text(encoding="utf-8")
  shown = text.split(after_table.BEGIN)[1].split(after_table.END)[0]
  assert shown.strip() == after_table.markdown().strip()
