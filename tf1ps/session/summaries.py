"""Summaries and step rates in event files, without a fetch of the global step at each step.

`SummarySaver` runs the scaffold's summary operation after a number of the chief's own steps or
after a number of seconds. `StepCounter` logs and writes the global steps per second. Both take the
global step from the tracker. `SessionLogger` and `write_checkpoint_log` write the session's log, so
that TensorBoard omits points that a restart makes again.

An event file is given either by its directory or by a writer. For a directory, TensorFlow's cache
has the writer. A given writer has an owner, which begins and ends the file.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Optional, Set, Union

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import TIMING, error_line
from tf1ps.graph import definition_without, large_constants

_log = logging.getLogger("tf1ps")
_failed: Set[str] = set()  # a process global: directories whose event file could not be written
EventFile = Union[str, tf.summary.FileWriter]


def is_directory(events: EventFile) -> bool:
  """Whether an event file is given by its directory."""
  return isinstance(events, (str, os.PathLike))


def write_summary(events: EventFile, summary: tf.Summary, step: Optional[int]) -> None:
  """Adds a summary to an event file; an error never ends the task.

  The writer of TensorFlow 2 raises the error of an earlier write, such as "disk full". A later
  summary then begins a new file.
  """
  _try(events, lambda writer: writer.add_summary(summary, step))


def write_checkpoint_log(events: EventFile, path: str, step: int) -> None:
  """Notes a checkpoint in an event file; an error never ends the task.

  Args:
    events: the event file.
    path: the path of the checkpoints before "-STEP".
    step: the global step.
  """
  _log_session(events, tf.SessionLog(status=tf.SessionLog.CHECKPOINT, checkpoint_path=path), step)


def flush_summaries(events: EventFile) -> None:
  """Flushes an event file; an error never ends the task."""
  _try(events, lambda writer: writer.flush())


def small_definition(graph: tf.Graph) -> tf.GraphDef:
  """Returns the definition of a graph without the graph's large constants."""
  return definition_without(graph, large_constants(graph))


def write_graph(writer: tf.summary.FileWriter, graph: tf.Graph) -> None:
  """Adds a graph and its meta graph to an event file, without the graph's large constants.

  TensorBoard colours only operations whose device names its type. Where TensorFlow sees no GPU, a
  device without a type is a CPU.
  """
  definition = small_definition(graph)
  if not tf.config.experimental.list_physical_devices("GPU"):
    for node in definition.node:
      if node.device and tf.DeviceSpec.from_string(node.device).device_type is None:
        node.device += "/device:CPU:0"
  for content in (dict(graph_def=definition.SerializeToString()),
                  dict(meta_graph_def=tf.MetaGraphDef(graph_def=definition).SerializeToString())):
    writer.add_event(tf.Event(wall_time=time.time(), **content))


def begin_event_file(writer: tf.summary.FileWriter) -> None:
  """Ends the writer's event file, and begins a new file.

  An event file's name has the second of its start. TensorFlow overwrites a file of the same second,
  so this function waits for the next second.
  """
  writer.close()
  until = time.monotonic() + 2.0
  while time.monotonic() < until and tf.gfile.Glob(
      os.path.join(writer.get_logdir(), "events.out.tfevents.%010d.*" % time.time())):
    time.sleep(TIMING.local_poll_interval)
  writer.reopen()


def _log_session(events, log, step):
  _try(events, lambda writer: writer.add_session_log(log, step))


def _try(events, function) -> None:
  try:
    function(tf.summary.FileWriterCache.get(events) if is_directory(events) else events)
  except (OSError, RuntimeError, IndexError, tf.errors.OpError) as error:  # "File too large" too
    tf.summary.FileWriterCache.clear()  # a writer that has failed writes nothing more
    directory = events if is_directory(events) else events.get_logdir()
    if directory not in _failed:
      _failed.add(directory)
      _log.warning("summaries in %s are lost, and this task goes on: %s", directory,
                   error_line(error))


class GraphWriter(tf.train.SessionRunHook):
  """Writes the graph to the event file (`write_graph`)."""

  def __init__(self, directory: str):
    """Creates the hook; it stands before the hooks that write to the directory's event file."""
    self._directory = directory

  def begin(self):
    graph = tf.get_default_graph()
    with tf.Graph().as_default():  # a new writer writes the default graph
      writer = tf.summary.FileWriterCache.get(self._directory)
    write_graph(writer, graph)


class SessionLogger(tf.train.SessionRunHook):
  """Writes where a session begins and ends.

  TensorBoard drops the earlier points from the step of the beginning on: a session that restores a
  checkpoint makes them again.
  """

  def __init__(self, tracker: GlobalStepTracker, events: EventFile):
    """Creates the hook, which runs after `tracker` and before the hooks that write to `events`."""
    self._tracker, self._events = tracker, events
    # A writer's owner itself writes a first point before the first step, and the session's end.
    self._has_owner = not is_directory(events)

  def after_create_session(self, session, coord):
    with session.graph.as_default():  # a new writer writes the default graph
      _log_session(self._events, tf.SessionLog(status=tf.SessionLog.START),
                   self._tracker.value + (0 if self._has_owner else 1))

  def end(self, session):
    if not self._has_owner:
      _log_session(self._events, tf.SessionLog(status=tf.SessionLog.STOP), None)


class SummarySaver(tf.train.SessionRunHook):
  """Writes the scaffold's summaries."""

  def __init__(self, tracker: GlobalStepTracker, scaffold: tf.train.Scaffold,
               events: EventFile, save_steps: Optional[int] = None,
               save_secs: Optional[float] = None):
    """Creates the hook, which runs after `tracker`. Give exactly one of the two intervals.

    Args:
      tracker: tracks the global step.
      scaffold: its `summary_op` makes the summaries; a `summary_op` of None: no summaries.
      events: the event file.
      save_steps: own steps between two summaries, or None.
      save_secs: seconds between two summaries, or None.
    """
    if (save_secs is None) == (save_steps is None):
      raise ValueError("give either save_steps or save_secs; got %r and %r" % (
        save_steps, save_secs))
    self._tracker, self._scaffold, self._events = tracker, scaffold, events
    self._save_steps, self._save_secs = save_steps, save_secs
    self._steps = 0
    self._next_step = 1
    self._next_time = 0.0
    self._due = False

  def begin(self):
    self._tracker.check_step("a summary")

  def before_run(self, run_context):
    self._due = self._scaffold.summary_op is not None and (
      self._steps + 1 >= self._next_step if self._save_steps is not None
      else time.monotonic() >= self._next_time)
    return tf.train.SessionRunArgs(self._scaffold.summary_op) if self._due else None

  def after_run(self, run_context, run_values):
    self._steps += self._tracker.run_steps
    if not self._due:
      return
    self._next_step = self._steps + (self._save_steps or 0)
    self._next_time = time.monotonic() + (self._save_secs or 0.0)
    step = self._tracker.value if self._tracker.asked else self._tracker.ask(run_context.session)
    write_summary(self._events, run_values.results, step)

  def end(self, session):
    flush_summaries(self._events)


def rate_summary(rate: float) -> tf.Summary:
  """Returns the summary of global steps per second."""
  return tf.Summary(value=[tf.Summary.Value(tag=StepCounter.TAG, simple_value=rate)])


class StepCounter(tf.train.SessionRunHook):
  """Logs and writes the global steps per second."""

  TAG = "global_step/sec"

  def __init__(self, tracker: GlobalStepTracker, every_steps: int,
               events: Optional[EventFile] = None):
    """Creates the hook, which runs after `tracker`.

    Two rates are at least `every_steps` global steps apart. Without an event file the rates are
    only logged.
    """
    if every_steps < 1:
      raise ValueError("every_steps must be at least 1, got %r" % (every_steps,))
    self._tracker, self._every_steps, self._events = tracker, every_steps, events
    self._last = None

  def after_create_session(self, session, coord):
    self._last = (self._tracker.value, time.monotonic())

  def after_run(self, run_context, run_values):
    if not self._tracker.asked:
      return
    step, now = self._tracker.value, time.monotonic()
    steps, seconds = step - self._last[0], now - self._last[1]
    if steps < self._every_steps or seconds <= 0:
      return
    self._last = (step, now)
    _log.info("%s: %.6g", self.TAG, steps / seconds)
    if self._events is not None:
      write_summary(self._events, rate_summary(steps / seconds), step)
