"""The hooks of --staleness_policy, and of the measured staleness.

The policies act in this order on a step:

  warm_up   delays the worker's first step (warm_up.py)
  damp      scales the learning rate of the update (replication/staleness.py)
  drop      decides whether the update is made (replication/staleness.py)
  max_lead  delays the next step (replication/clocks.py)

damp and drop are part of the update's graph (async_update.py). The age of each gradient is recorded
with and without a policy (staleness_recorder.py).
"""

from __future__ import annotations

from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.replication import Clocks, LeadHook
from tf1ps.session import Membership
from tf1ps.training import options as options_lib
from tf1ps.training import staleness_recorder, warm_up
from tf1ps.training import step as step_lib
from tf1ps.training.counts import Counts


class StalenessPolicies:
  """The staleness hooks of one worker, and their report.

  Attributes:
    first_hooks: hooks that come before the stops and before the step's own hooks.
    hooks: hooks that come after the stops and the step's own hooks.
  """

  def __init__(self, options: options_lib.Options, step: step_lib.Step, counts: Counts,
               membership: Membership, is_alone: bool = False):
    """Builds the operations of the hooks, in the step's graph.

    `is_alone` says that all other workers have done their part.
    """
    self._counts, tracker = counts, counts.tracker
    self.first_hooks: List[tf.train.SessionRunHook] = []
    self.hooks: List[tf.train.SessionRunHook] = []
    self._recorder: Optional[staleness_recorder.StalenessRecorder] = None
    self._lead: Optional[LeadHook] = None
    self._max_staleness = options.staleness.drop
    if step.counted is not None:
      self._recorder = staleness_recorder.StalenessRecorder(
        step.age_tables, counts,
        options.checkpoint_dir if membership.is_chief else None)
      self.first_hooks.append(self._recorder)
    cluster = membership.cluster
    if cluster.num_replicas == 1 or not (options.staleness.max_lead or options.staleness.warm_up):
      return
    clocks = Clocks(tf.train.get_global_step(), cluster.num_replicas, cluster.replica_index)
    if options.staleness.warm_up:
      self.first_hooks.append(warm_up.WarmUp(
        clocks, options.staleness.warm_up, tracker, membership, options.steps,
        options.start_timeout))
    if options.staleness.max_lead:
      self._lead = LeadHook(
        clocks, clocks.advance(step.train_op), options.staleness.max_lead, options.start_timeout,
        expects_all=not (options.staleness.warm_up or is_alone), end_timeout=TIMING.end_timeout)
      self.hooks.append(self._lead)

  @property
  def ages(self):
    """The `Ages` of the applied gradients as last read; None: they are not measured."""
    return None if self._recorder is None else self._recorder.ages

  def __str__(self):
    """The effect of the policies in words, for the worker's last line; "" for none."""
    parts = []
    if self._recorder is not None:
      ages = self._recorder.ages
      if ages.gradients:
        parts.append(str(ages))
      dropped = self._counts.late_batches
      if dropped:
        parts.append("%d gradient%s dropped (--staleness_policy=drop:%d)" % (
          dropped, "" if dropped == 1 else "s", self._max_staleness))
    if self._lead is not None:
      parts.append("lead %d at most (waited %.1f s)" % (self._lead.highest, self._lead.seconds))
    return ", ".join(parts)
