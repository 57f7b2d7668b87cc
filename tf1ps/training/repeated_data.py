"""Synchronous training on uneven data that begin again (`--on_uneven=repeat`).

1. When this worker's data end, the hook notes it in the state of the rounds and initialises the
   iterators. Then the session repeats the step.
2. When the data of the last worker have ended, this worker ends training for all. Waiting workers
   then get the end of training instead of the next update.
3. A checkpoint keeps the number of finished passes with the position of the input. A restore brings
   both back.
"""

from __future__ import annotations

import logging
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import InputPositions
from tf1ps.cluster import LifecycleHook
from tf1ps.pipeline import iterator_initializers, restart_problem
from tf1ps.replication import SyncReplicasOptimizer, is_end_of_replicas, view_rounds

_log = logging.getLogger("tf1ps")


class RepeatedData(LifecycleHook):
  """Begins the data again until all workers have gone through their data.

  The hook must come after the hooks of the rounds and of the input's position.

  Attributes:
    all_went_through: whether training has ended because all workers went through their data.
  """

  def __init__(self, optimizer: SyncReplicasOptimizer):
    """Creates the hook, after the optimizer's apply_gradients.

    Raises ValueError if the input of the default graph cannot begin again.
    """
    problem = restart_problem(
      tf.get_default_graph(), "under --on_uneven=repeat the input begins again where its data end "
      "before those of other workers. ", needs_iterator=True)
    if problem is not None:
      raise ValueError(problem)
    self._optimizer = optimizer
    self._positions: Optional[InputPositions] = None
    self._lifecycle = None
    self._began_at: Optional[int] = None  # own steps when the pass began; None: in a new session
    self.all_went_through = False

  def follow(self, positions: InputPositions) -> None:
    """Makes the hook keep the number of passes with the position of the input."""
    self._positions = positions

  def on_join(self, lifecycle) -> None:
    self._lifecycle = lifecycle

  def after_create_session(self, session, coord):
    self._began_at = None  # the restored position may be the end of the data
    if self._positions is not None and self._positions.passes:
      session.run(self._optimizer.finish_pass)

  def begin_next_pass(self, session, error: tf.errors.OutOfRangeError) -> bool:
    """Begins the data again, unless all workers went through their data; returns whether it did.

    Raises RuntimeError if the pass that has ended had no batch.
    """
    sessions, is_end = self._lifecycle.sessions, is_end_of_replicas(error)
    own_steps = self._lifecycle.tracker.own_steps
    if not is_end and own_steps == self._began_at:
      raise RuntimeError(
        "under --on_uneven=repeat the input started again and gave no batch. Either this worker's "
        "share is empty, or its input does not start again when its iterator is initialised again")

    def finish_pass(inside):
      if self._lifecycle.sessions != sessions:
        return True  # a new session continues at its own position
      if is_end or inside.run(self._optimizer.finish_pass):
        self._note_end(inside)
        return False
      inside.run(iterator_initializers(
        inside.graph, only_task=self._lifecycle.membership.cluster.task.name))
      if self._positions is not None:
        self._positions.begin_pass()
      self._began_at = own_steps
      return True

    goes_on = session.call_inside(finish_pass)
    if self._lifecycle.sessions != sessions:
      if self._positions is not None:
        self._positions.go_on()
    elif goes_on:
      _log.info("this worker's data begin again (--on_uneven=repeat): other workers have not "
                "reached the end of theirs")
    return goes_on

  def _note_end(self, session):
    state = view_rounds(session.run(self._optimizer.look))
    self.all_went_through = all(state.went_through)
    if self.all_went_through and self._positions is not None:
      self._positions.forget()
