"""The ensemble of processes, one of which is dead and comes later."""
from __future__ import annotations

import itertools
import pathlib

import pytest
import tensorflow.compat.v1 as tf

from tests import file_tasks, harness
from tests.examples import importing

FILE = str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "ensemble_queues.py")
_numbers = itertools.count()

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


class Parts:
  """All parts of the example in one session; network i predicts 1 + 2 i times its input."""

  def __init__(self, ps, timeout):
    self.example = importing.load("ensemble_queues")
    with tf.Graph().as_default() as graph, graph.container("ensemble.%d" % next(_numbers)):
      self.queues = self.example.Queues(3)
    self.session = tf.Session("grpc://" + ps.address, graph)
    self.aggregator = self.example.Aggregator(self.session, self.queues, timeout)

  def feed(self, *values):
    for value in values:
      self.example.feed(self.session, self.queues, value)

  def predict(self, *indices):
    """Has these networks answer what they were asked; returns how many requests each had."""
    return [self.example.answer(self.session, self.queues, i, lambda x, i=i: (2 * i + 1) * x)
            for i in indices]


@pytest.fixture
def make(ps):
  """Makes the parts with a timeout; closes their sessions."""
  made = []

  def make_parts(timeout):
    made.append(Parts(ps, timeout))
    return made[-1]

  yield make_parts
  for parts in made:
    parts.session.close()


def test_a_late_prediction_is_not_taken_for_the_next_request(make, capsys):
  parts = make(timeout=0.5)
  parts.feed(1.0)
  parts.predict(0, 1, 2)
  assert parts.aggregator.answer() == [1.0, 3.0, 5.0]
  parts.feed(100.0)
  parts.predict(0, 1)
  assert parts.aggregator.answer() == [100.0, 300.0]
  assert capsys.readouterr().out == "net 2 timed out\n"
  parts.predict(2)  # too late: it is alive, and still is not waited for
  parts.feed(2.0)
  parts.predict(0, 1)
  assert parts.aggregator.answer() == [2.0, 6.0] and not capsys.readouterr().out
  answers = []
  while not answers or "net 2 is back" not in capsys.readouterr().out:
    # On a machine that stands still for half a second even a living one is late.
    assert len(answers) < 50
    parts.feed(7.0)
    parts.predict(0, 1, 2)
    answers.append(parts.aggregator.answer())
  assert answers[-1] == [7.0, 21.0, 35.0]


def test_predictions_that_come_before_their_turn_are_kept(make):
  parts = make(timeout=60.0)
  parts.feed(*range(5))
  assert parts.predict(0, 1) == [5, 5]
  parts.feed(*range(5, 10))
  assert parts.predict(0, 1, 2) == [5, 5, 10]
  assert [parts.aggregator.answer() for _ in range(10)] == [[n, 3 * n, 5 * n] for n in range(10)]
  assert parts.aggregator._heard == {}


@pytest.mark.slow
def test_nobody_waits_for_a_network_with_a_full_queue(make):
  parts = make(timeout=0.1)
  for number in range(103):  # networks 1 and 2 are dead
    parts.feed(number)
    parts.predict(0)
    assert parts.aggregator.answer() == [number]
  numbers, values = parts.queues.inputs[1].get(parts.session, 101, up_to=True, timeout=0)
  assert len(numbers) == 101 and values.tolist() == list(range(101))


@pytest.mark.slow
def test_a_network_that_is_dead_and_comes_back(start):
  address, = harness.addresses(1)

  def begin(role, *arguments):
    return start(role, file_tasks.run_file, FILE, "--role=" + role, "--ps=" + address, *arguments)

  def feed(*arguments):
    feeder = begin("feeder", *arguments)
    assert feeder.wait() == 0, feeder.output

  begin("ps")
  networks = [begin("net", "--index=%d" % index) for index in range(2)]
  last = begin("aggregator", "--timeout=8")  # networks 0 and 1 take no second
  for index, network in enumerate(networks):
    network.wait_for("net %d serves" % index)
  last.wait_for("waits for requests")
  feed("--inputs=1,2")
  last.wait_for("[4.0, 12.0] mean 8.0")
  assert last.lines[-3:] == ["net 2 timed out", "[2.0, 6.0] mean 4.0", "[4.0, 12.0] mean 8.0"]

  networks.append(begin("net", "--index=2"))
  networks[2].wait_for("net 2 serves")
  harness.wait_until(lambda: feed("--inputs=1") or "net 2 is back" in last.output)
  feed("--inputs=3", "--last")
  for task in networks + [last]:
    assert task.wait() == 0, task.output
  assert last.last_line == "[6.0, 18.0, 30.0] mean 18.0"
  assert networks[0].last_line == networks[1].last_line.replace("net 1", "net 0")
