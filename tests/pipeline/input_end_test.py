from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.pipeline import classic
from tf1ps.pipeline import input_end, iterators
from tf1ps.pipeline.input_end import Ending

pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def numbers():
  return tf.data.Dataset.range(3)


def next_of(dataset):
  return tf.data.make_initializable_iterator(dataset).get_next()


def plus_one(x):
  return x + 1


def is_large(x):
  return x > 0


@pytest.mark.parametrize("make_iterator", [
  tf.data.make_one_shot_iterator, tf.data.make_initializable_iterator])
@pytest.mark.parametrize("make, expected", [
  (lambda data: data.batch(2), Ending.AT_AN_END),
  (lambda data: data.repeat(2).batch(2), Ending.AT_AN_END),
  (lambda data: data.repeat().batch(2), Ending.ENDLESS),
  (lambda data: data.batch(2).repeat(), Ending.ENDLESS),
  (lambda data: data.shuffle(3).repeat().map(plus_one, 2).filter(is_large).batch(2).prefetch(2),
   Ending.ENDLESS),
  (lambda data: data.apply(tf.data.experimental.shuffle_and_repeat(3)).batch(2), Ending.ENDLESS),
  (lambda data: data.repeat().batch(2).repeat(3), Ending.ENDLESS),
  (lambda data: data.repeat().batch(2).take(5), Ending.AT_AN_END),
  (lambda data: data.repeat().map(  # a function of Python may end it
    lambda x: tf.py_func(plus_one, [x], tf.int64)).batch(2), Ending.AT_AN_END)])
def test_a_repeat_without_end_is_known(make_iterator, make, expected):
  batch = make_iterator(iterators.without_autotuning(make(numbers()))).get_next()
  assert input_end.ending_of({"a": batch + 1, "b": None}) is expected


def test_what_other_data_end_is_not_endless():
  endless, ends = next_of(numbers().repeat()), next_of(numbers())
  assert input_end.ending_of([endless]) is Ending.ENDLESS
  assert input_end.ending_of([endless, tf.random.uniform([])]) is Ending.ENDLESS
  queue = tf.FIFOQueue(2, tf.int64, [[]])
  for others in ([ends], [tf.train.limit_epochs(ends, 1), tf.constant(1)], [queue.dequeue()]):
    assert input_end.ending_of([endless, *others]) is Ending.AT_AN_END


def local(use_resource):
  return tf.get_local_variable("y", initializer=tf.ones([2]), use_resource=use_resource)


@pytest.mark.parametrize("make, expected", [
  (lambda: [tf.constant(1), None], Ending.CONSTANT),
  (lambda: local(True) + 0, Ending.CONSTANT),
  (lambda: local(False) + 0, Ending.CONSTANT),
  (lambda: [tf.random.uniform([2, 3]), tf.constant(1)], Ending.GENERATED),
  (lambda: tf.random.truncated_normal([2]) * local(True), Ending.GENERATED),
  (lambda: tf.random.shuffle(tf.constant([1, 2])), Ending.GENERATED),
  (lambda: tf.nn.uniform_candidate_sampler([[1]], 1, 2, True, 9)[0], Ending.GENERATED),
  (lambda: tf.py_func(plus_one, [1], tf.int64), Ending.AT_AN_END)])
def test_data_without_a_dataset(make, expected):
  assert input_end.ending_of(make()) is expected


@pytest.mark.parametrize("epochs, expected", [(None, Ending.ENDLESS), (2, Ending.AT_AN_END)])
@pytest.mark.parametrize("make", [
  lambda epochs: classic.pipeline(["a.csv"], num_epochs=epochs),
  lambda epochs: classic.pipeline(["a.csv"], num_epochs=epochs, shuffle=True, read_up_to=2),
  lambda epochs: tf.train.batch(
    tf.train.slice_input_producer([[1., 2.], [3, 4]], num_epochs=epochs), 2),
  lambda epochs: tf.train.range_input_producer(4, num_epochs=epochs).dequeue()])
def test_queues_that_runners_fill_again(make, epochs, expected):
  assert input_end.ending_of(make(epochs)) is expected


def test_a_queue_that_the_program_fills_itself_may_end():
  queue = tf.RandomShuffleQueue(8, 2, tf.int64, [[]])
  queue.enqueue(1)
  assert input_end.ending_of(queue.dequeue()) is Ending.AT_AN_END
  tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(next_of(numbers()))]))
  assert input_end.ending_of(queue.dequeue()) is Ending.AT_AN_END
