"""Queue-linked ensembles: exact answers, networks that die, come back, are slow or absent."""
from __future__ import annotations

import itertools
import signal

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.replication import ensemble_tasks
from tf1ps.replication import ensemble as ensemble_lib
from tf1ps.replication import queue_ensemble
from tf1ps.state import queue_errors

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

LONG = 60.0  # seconds; a limit that no test is to reach
_numbers = itertools.count()


class Parts:
  """All parts of an ensemble on one ps, in one graph: a queue takes a while to build.

  Its networks answer when the test says so: x times 1, 3, 5.
  """

  def __init__(self, ps, networks=3, **options):
    self.target = "grpc://" + ps.address
    self.options = dict(options, name="ensemble", networks=networks, device=ps.name,
                        container="ensemble.%d" % next(_numbers))
    with tf.Graph().as_default() as self.graph:
      self.ensemble = queue_ensemble.QueueEnsemble(**self.options)
      self.feeder = queue_ensemble.Feeder(self.ensemble)
      self.networks = [queue_ensemble.Network(self.ensemble, i) for i in range(networks)]
    self.session = tf.Session(self.target, self.graph)

  def aggregate(self, timeout=LONG, **options):
    """Begins with a new aggregator and empty queues."""
    with self.graph.as_default():
      self.aggregator = queue_ensemble.Aggregator(self.ensemble, timeout, **options)
    for queue in self.ensemble._queues.values():
      queue.drain(self.session)
    return self

  def add_feeder(self):
    with self.graph.as_default():
      return queue_ensemble.Feeder(self.ensemble)

  def feed(self, *values):
    return [self.feeder.feed(self.session, value, timeout=0) for value in values]

  def predict(self, *indices, batch=32):
    """Has these networks answer what they were asked; returns how many requests each had."""
    return [self.networks[i].answer(
      self.session, lambda x, i=i: (2 * i + 1) * x, batch, timeout=0) for i in indices]

  def answer(self):
    return self.aggregator.answer(self.session, wait=0)


@pytest.fixture(scope="module")
def three(ps):
  """Three networks, for all tests that do not close them."""
  parts = Parts(ps)
  yield parts
  parts.session.close()


@pytest.fixture
def make(ps):
  """Makes ensembles for one test; closes their sessions."""
  made = []

  def make_one(**options):
    made.append(Parts(ps, **options))
    return made[-1]

  yield make_one
  for parts in made:
    parts.session.close()


@pytest.mark.slow
def test_a_request_is_answered_by_all(three):
  three.aggregate()
  number, = three.feed(2.0)
  assert three.predict(0, 1, 2) == [1, 1, 1]
  answer = three.answer()
  assert answer.number == number and answer.networks == [0, 1, 2]
  assert answer.predictions.tolist() == [2.0, 6.0, 10.0] and answer.combined == 6.0
  assert answer.timed_out == answer.back == three.aggregator.left_out == []


@pytest.mark.slow
def test_one_that_is_dead_delays_one_answer_and_is_left_out_until_it_is_back(three, caplog):
  timeout = 0.5
  three.aggregate(timeout)
  number, _ = three.feed(2.0, 2.0)
  three.predict(0, 1)
  first = three.answer()
  three.aggregator._timeout = LONG  # so that a wait of the next answer could not be overlooked
  second = three.answer()
  three.aggregator._timeout = timeout
  assert (first.predictions.tolist(), first.combined) == ([2.0, 6.0], 4.0)
  assert first.timed_out == ["net 2"] and first.seconds >= timeout
  assert (second.predictions.tolist(), second.combined) == ([2.0, 6.0], 4.0)
  assert second.timed_out == [] and second.seconds < LONG / 2
  assert three.aggregator.left_out == ["net 2"]
  assert "net 2 timed out: no prediction for request %d within 0.5 s" % number in caplog.text

  # What it makes of an old request tells nothing; it is back when it answers a new one in time.
  assert three.predict(2) == [2]
  three.feed(3.0)
  three.predict(0, 1)
  old = three.answer()
  assert old.networks == [0, 1] and old.timed_out == old.back == []
  assert three.aggregator.left_out == ["net 2"]
  answers = []
  # On a machine that stands still for half a second even a living one is late.
  while not answers or not answers[-1].back:
    three.feed(4.0)
    three.predict(0, 1, 2)
    answers.append(three.answer())
    assert len(answers) < 50
  assert answers[-1].back == ["net 2"] and answers[-1].predictions.tolist() == [4.0, 12.0, 20.0]
  assert three.aggregator.left_out == []
  assert "net 2 is back" in caplog.text


def test_a_late_answer_is_not_taken_for_the_next_request(three):
  three.aggregate(timeout=0.1, quorum=1)
  three.feed(1.0, 100.0)
  three.predict(0, 1)
  three.predict(2, batch=1)  # of the first request alone
  assert three.answer().predictions.tolist() == [1.0, 3.0, 5.0]
  slow = three.answer()
  assert slow.predictions.tolist() == [100.0, 300.0] and slow.timed_out == ["net 2"]
  three.feed(7.0)
  assert three.predict(0, 1, 2) == [1, 1, 2]  # now it says 500, and then 35
  assert three.answer().predictions.tolist() == [7.0, 21.0, 35.0]


def test_predictions_that_come_before_their_turn_are_kept(three):
  three.aggregate()
  numbers = three.feed(*range(10))
  assert numbers == list(range(numbers[0], numbers[0] + 10))
  assert three.predict(0, 1, batch=4) == [4, 4]
  assert three.predict(0, 1, 2) == [6, 6, 10]
  answers = [three.answer() for _ in range(10)]
  assert [answer.number for answer in answers] == numbers
  assert [answer.predictions.tolist() for answer in answers] == [
    [n, 3 * n, 5 * n] for n in range(10)]
  assert three.aggregator._got == {}


@pytest.mark.slow
def test_two_feeders_with_the_same_numbers(three):
  three.aggregate(timeout=0.1)
  other = three.add_feeder()
  other._next = three.feeder._next
  for value in (1.0, 2.0):
    three.feed(value)
    other.feed(three.session, 10 * value)
  three.predict(0, 1)
  answers = [three.answer() for _ in range(4)]
  assert [answer.combined for answer in answers] == [2.0, 20.0, 4.0, 40.0]
  assert answers[0].number == answers[1].number == answers[2].number - 1 == answers[3].number - 1
  assert answers[0].feeder == answers[2].feeder != answers[1].feeder == answers[3].feeder
  three.predict(2)  # too late for both
  three.feed(3.0)
  three.predict(0, 1)
  assert three.answer().predictions.tolist() == [3.0, 9.0]
  assert three.aggregator._got == {}


@pytest.mark.slow
def test_an_aggregator_that_takes_the_place_of_another(three):
  three.aggregate()
  lost, number = three.feed(1.0, 2.0)
  assert three.ensemble.requests.get(three.session).tolist()[1] == lost  # it was killed with this
  three.predict(0, 1, 2)
  answer = three.answer()
  assert answer.number == number and answer.predictions.tolist() == [2.0, 6.0, 10.0]
  assert three.aggregator._got == {}


def test_fewer_than_the_quorum(three):
  three.aggregate(timeout=0.1, quorum=2)
  numbers = three.feed(2.0, 3.0)
  three.predict(1, batch=1)
  with pytest.raises(queue_ensemble.QuorumError, match=(
      "^request %d: 1 of 3 networks answered within 0.1 s, 2 are needed. Silent: net 0, net 2$"
      % numbers[0])) as caught:
    three.answer()
  assert caught.value.silent == caught.value.answer.timed_out == ["net 0", "net 2"]
  assert caught.value.answer.predictions.tolist() == [6.0]
  assert caught.value.answer.combined is None
  # The quorum is waited for, also where those that it takes are left out.
  three.predict(1)
  with pytest.raises(queue_ensemble.QuorumError, match="Silent: net 0, net 2$") as caught:
    three.answer()
  assert caught.value.answer.seconds >= 0.1 and caught.value.answer.timed_out == []
  number, = three.feed(4.0)
  three.predict(0, 1)
  answer = three.answer()
  assert answer.number == number and answer.predictions.tolist() == [4.0, 12.0]


def test_no_request(three):
  three.aggregate()
  with pytest.raises(queue_errors.QueueEmpty):
    three.answer()
  with pytest.raises(queue_errors.QueueEmpty):
    three.predict(0)


def test_inputs_of_a_wrong_shape_are_no_request(three):
  three.aggregate()
  with pytest.raises(ValueError):
    three.feed([1.0, 2.0])
  with pytest.raises(queue_errors.QueueEmpty):
    three.answer()


def test_predictions_of_a_wrong_shape(three):
  three.aggregate()
  three.feed(1.0)
  with pytest.raises(ValueError, match=r"net 1 must predict \(1,\) for inputs of \(1,\), it "
                                       r"predicted \(1, 2\)"):
    three.networks[1].answer(three.session, lambda x: [[1.0, 2.0]])


@pytest.mark.slow
def test_queues_that_are_full_and_the_end(make):
  parts = make(networks=2, capacity=2).aggregate(timeout=0.1, quorum=1)
  for number in range(5):  # network 1 is dead: nobody waits for room in its queue
    parts.feed(number)
    parts.predict(0)
    assert parts.answer().predictions.tolist() == [number]
  assert parts.feeder.missed == [0, 2]  # there is room for one more than the capacity
  assert parts.predict(1) == [3]
  parts.feed(1.0, 2.0)
  with pytest.raises(queue_errors.QueueFull):  # the aggregator is waited for
    parts.feed(3.0)
  parts.session.run(parts.feeder.close)
  with pytest.raises(queue_errors.QueueEnded):
    parts.feed(3.0)
  for network in parts.networks:
    assert network.serve(parts.session, lambda x: x) == 2
  answers = list(parts.aggregator.answers(parts.session))
  assert [answer.predictions.tolist() for answer in answers] == [[1.0, 1.0], [2.0, 2.0]]
  with pytest.raises(queue_errors.QueueEnded):
    parts.answer()


@pytest.mark.slow
def test_vectors_and_a_vote(make):
  parts = make(networks=2, input_shape=[2], prediction_shape=[3], prediction_dtype=tf.int32)
  parts.aggregate(combine=ensemble_lib.vote_predictions)
  parts.feed([0.5, 1.5])
  for network, classes in zip(parts.networks, ([1, 5, 9], [2, 5, 7])):

    def predict(inputs, classes=classes):
      assert inputs.tolist() == [[0.5, 1.5]]
      return [classes]

    network.answer(parts.session, predict)
  answer = parts.answer()
  assert answer.predictions.tolist() == [[1, 5, 9], [2, 5, 7]]
  assert answer.combined.tolist() == [1, 5, 7] and answer.combined.dtype == np.int32


def describe(**options):
  return queue_ensemble.QueueEnsemble(**dict({"name": "e", "networks": 3}, **options))


@pytest.mark.parametrize("function, message", [
  (lambda: describe(name=""), "needs a name"),
  (lambda: describe(networks=0), "at least one network, got networks=0"),
  (lambda: queue_ensemble.Network(describe(), 3), "index must be from 0 to networks - 1, got 3 of"),
  (lambda: queue_ensemble.Aggregator(describe(), 0), "timeout must be a number of seconds above 0"),
  (lambda: queue_ensemble.Aggregator(describe(), 1, 4), "quorum must be from 1 to networks, got 4"),
])
def test_arguments_that_cannot_work(function, message):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    function()


class Asking:
  """Asks networks that are processes, again and again.

  On a machine that stands still a living network is late, too: so a test waits for an answer of the
  kind that it is about, and checks all.
  """

  def __init__(self, parts, factors):
    self._parts, self._factors = parts, factors
    self.seen = []

  def until(self, condition):
    """Asks until condition(answer); returns what was answered meanwhile."""
    began = len(self.seen)

    def ask():
      value = 1.0 + len(self.seen)
      self._parts.feeder.feed(self._parts.session, value, timeout=LONG)
      try:
        answer = self._parts.aggregator.answer(self._parts.session)
      except queue_ensemble.QuorumError as error:  # none of them was fast enough, or there yet
        answer = error.answer
      # Whatever comes when, each answer is made of the predictions for its own request.
      assert answer.predictions.tolist() == [value * self._factors[i] for i in answer.networks]
      self.seen.append(answer)
      return condition(answer)

    harness.wait_until(ask, what=lambda: "the answer, after %s" % (self.seen[-3:],))
    return self.seen[began:]


@pytest.mark.slow
def test_processes_of_which_one_stands_still_and_one_dies_and_comes_back(make, start):
  factors = [2.0, 6.0, 10.0]
  parts = make().aggregate(timeout=0.5, quorum=1)

  def start_network(index):
    return start("net %d" % index, ensemble_tasks.serve, parts.target, parts.options, index,
                 factors[index])

  def is_whole(answer):
    return answer.networks == [0, 1, 2] and parts.aggregator.left_out == []

  networks = [start_network(index) for index in range(3)]
  asking = Asking(parts, factors)
  asking.until(is_whole)

  networks[1].signal(signal.SIGSTOP)
  without = asking.until(lambda answer: answer.networks == [0, 2] and not answer.timed_out)
  assert any("net 1" in answer.timed_out for answer in without)
  networks[1].signal(signal.SIGCONT)  # what it says now, it says to requests of before
  assert any("net 1" in answer.back for answer in asking.until(is_whole))

  networks[2].kill()
  without = asking.until(lambda answer: answer.networks == [0, 1] and not answer.timed_out)
  assert any("net 2" in answer.timed_out for answer in without)
  assert "net 2" in parts.aggregator.left_out
  networks[2] = start_network(2)
  assert any("net 2" in answer.back for answer in asking.until(is_whole))

  parts.session.run(parts.feeder.close)
  for network in networks:
    assert network.wait() == 0, network.output


@pytest.mark.slow
def test_every_part_is_a_process_of_its_own(ps, start):
  where = "grpc://" + ps.address, dict(
    name="ensemble", networks=2, device=ps.name, container="ensemble.%d" % next(_numbers))
  networks = [start("net %d" % i, ensemble_tasks.serve, *(where + (i, 2.0 + 4.0 * i)))
              for i in range(2)]
  last = start("aggregator", ensemble_tasks.aggregate, *(where + (LONG,)))
  feeder = start("feeder", ensemble_tasks.feed, *(where + (list(range(40)),)))
  for task in [feeder, last] + networks:
    assert task.wait() == 0, task.output
  assert feeder.lines[-1] == "fed [0, 0]"
  assert last.lines[-40:] == ["%d: [%s, %s] %s" % (n, 2.0 * n, 6.0 * n, 4.0 * n) for n in range(40)]
  assert [network.lines[-1] for network in networks] == ["answered 40"] * 2
