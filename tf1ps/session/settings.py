"""The purpose and the limits of a training session: one tuple for every kind of session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Sequence, Union

from tf1ps.compat import START_TIMEOUT as START_TIMEOUT
from tf1ps.compat import TIMING

if TYPE_CHECKING:  # the flags read PS_RECOVERIES, and --help needs no TensorFlow
  import tensorflow.compat.v1 as tf

# Where the chief restores the last checkpoint after the loss of a ps: on all ps or on that ps only.
ALL, LOST_ONLY = PS_RECOVERIES = ("all", "lost_only")
END_TIMEOUT = TIMING.end_timeout  # seconds without a missing worker's step: then the chief gives up


def check_limits(**limits: Optional[float]) -> None:
  """Raises ValueError for a limit that is neither None nor a positive number of seconds."""
  for name, value in limits.items():
    if value is not None and not value > 0:
      raise ValueError("%s must be a positive number of seconds, got %r" % (name, value))


class Interval(NamedTuple):
  """The interval of an action, in seconds or in steps; None for both means never."""

  secs: Optional[float] = None  # seconds
  steps: Optional[int] = None  # steps

  def __bool__(self):
    return (self.secs or self.steps or 0) > 0


class SessionSettings(NamedTuple):
  """The purpose of a session; `MonitoredTrainingSession` explains the fields that it shares."""

  is_chief: bool
  checkpoint_dir: Optional[str] = None
  scaffold: Optional[tf.train.Scaffold] = None
  # Where the cluster is known, a config without device filters gets them from the graph.
  config: Optional[tf.ConfigProto] = None
  master: str = ""  # the target of a server of an unknown cluster
  save_checkpoint: Interval = Interval()  # how often the chief saves
  save_summaries: Interval = Interval()
  # The directory of the event file, None: checkpoint_dir; or a writer, whose owner ends the file.
  events: Optional[Union[str, tf.summary.FileWriter]] = None
  save_graph_def: bool = True
  log_step_count_steps: Optional[int] = None
  checkpoint_basename: str = "model.ckpt"  # the names of the checkpoints before "-STEP"
  needs_global_step: bool = True  # whether a graph without a global step cannot be saved
  start_timeout: float = START_TIMEOUT
  end_timeout: float = END_TIMEOUT
  max_wait_secs: float = 7200.0
  heartbeat_timeout: Optional[float] = None
  stop_grace_period_secs: float = 120.0
  ps_recovery: str = ALL
  releases: bool = True  # whether the end of the session ends the job and the membership
  ends_job: bool = True  # False: the end of the process, not of the session, ends this task's part
  awaits_workers: bool = True  # whether the end of the chief waits for the other workers
  expects_all: bool = True  # whether a worker that never joins fails the job
  # For a job without ps, where a hook ends the loops of all workers together, even after a signal.
  # The function returns whether no signal has ended the loop.
  ends_by_vote: Optional[Callable[[], bool]] = None
  shared_options: Sequence[str] = ()  # flags, as texts, that must be the same on all workers
  count_examples: Callable[[], int] = lambda: 0  # returns the examples this worker has trained on
  # Raises PartDoneError if the run had ended before this start; called in the wait for its tasks.
  check_not_over: Callable[[], None] = lambda: None
