"""Turning the page: the update that ends a turn, where all have come whom it waits for.

In a step on the book, in this order:

1. The book says that an update has begun, so that one which is cut off is known (TORN).
2. The update is made.
3. The next turn begins: those who came know it, and get their tokens, with the mean of their
   losses.

Whom a turn waits for is a matter of the rules.
"""

from __future__ import annotations

from typing import Callable, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.replication import shared_book, turn_book
from tf1ps.replication.choices import SHRINK


class Rules(NamedTuple):
  """What all replicas of a job must agree on."""

  replicas: int  # how many there are
  aggregate: int  # how many gradients make an update
  on_uneven: str  # what the end of one replica's data means


def turn(shared: shared_book.SharedBook, rules: Rules, book: turn_book.Book,
         update: Callable[[tf.Tensor], tf.Tensor]) -> turn_book.Book:
  """Makes the update and begins the next turn, if all have come; to be called in a step.

  Args:
    shared: where the book is kept.
    rules: those of the job.
    book: as it stands.
    update: gets an int64 vector with a 1 for each replica that came; makes the update from their
      rows and returns the global step after it.

  Returns:
    The book after that, or as it stood.
  """
  def turn_it():
    begun = book._replace(updating=tf.ones([], tf.int64))
    with tf.control_dependencies([shared.write(begun)]):
      came = tf.identity(book.came)
    with tf.control_dependencies([came]), shared.elsewhere():
      step = tf.cast(update(came), tf.int64)
    later = book.turn + 1
    tokens = shared.put_tokens(came, [later, step, 0, _mean_loss(book)])
    with tf.control_dependencies(tokens):
      return list(book._replace(
        turn=later, known=tf.where_v2(tf.equal(came, 1), later, book.known),
        taken=book.taken + came, came=tf.zeros_like(came),
        updating=tf.zeros([], tf.int64), update_step=tf.identity(step)))

  return turn_book.Book(*tf.cond(
    _is_complete(rules, book), turn_it, lambda: [tf.identity(part) for part in book]))


def _mean_loss(book) -> tf.Tensor:
  """The mean of the losses of those who came, the bits of a float64."""
  losses = tf.bitcast(book.loss, tf.float64)
  those = tf.where_v2(tf.equal(book.came, 1), losses, tf.zeros_like(losses))
  return tf.bitcast(tf.reduce_sum(those) / tf.cast(tf.reduce_sum(book.came), tf.float64), tf.int64)


def _is_complete(rules, book) -> tf.Tensor:
  wanted = tf.constant(rules.aggregate, tf.int64)
  if rules.on_uneven == SHRINK:
    wanted = tf.minimum(wanted, rules.replicas - tf.reduce_sum(book.gone))
  there = tf.reduce_sum(tf.maximum(book.came, book.padding))
  is_complete = tf.logical_and(there >= wanted, tf.reduce_sum(book.came) > 0)
  return tf.logical_and(is_complete, tf.equal(book.ended, 0))
