"""Writes the figures of a whole job into the chief's event files: see docs/tensorboard.md.

1. Once: the options of the run, as a text.
2. Every few seconds: the steps and examples per second of each worker. They come from the
   heartbeats, which the chief reads anyway, so no further message is sent.
3. With the other summaries of the graph: the sizes of the queues of the input.
"""

from __future__ import annotations

import time
from typing import Dict, List, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps import version
from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import TIMING
from tf1ps.session import Membership, write_summary
from tf1ps.state import MEMBER_SERVING, MEMBER_TRAINING, Member
from tf1ps.training import options as options_lib
from tf1ps.training import step as step_lib

FLAGS_TAG = "flags"
STEPS_TAG, EXAMPLES_TAG = "steps_per_sec/", "examples_per_sec/"
QUEUES_TAG = "queue_size/"


class _Look(NamedTuple):
  """The progress of a worker at one of its heartbeats."""

  sent: float  # when, by this process's monotonic clock
  steps: int
  examples: int


class WorkerRates:
  """The rates of each worker, from two of its heartbeats."""

  def __init__(self):
    self._last: Dict[str, _Look] = {}

  def update(self, members: List[Member], now: float) -> Dict[str, tuple]:
    """Returns {"worker_0": (steps per second, examples per second)} since the last call.

    A worker without a new heartbeat since then is left out, and so is one that has begun anew.

    Args:
      members: the last heartbeats, with their ages as of `now`.
      now: seconds by the monotonic clock.
    """
    found = {}
    for member in members:
      if member.role == "ps" or member.state == MEMBER_SERVING:
        continue  # a worker that serves makes no step of its own
      name = "%s_%d" % (member.job, member.index)
      look = _Look(now - member.age, member.step, member.examples)
      before = self._last.get(name)
      if before is None or look.steps < before.steps or look.examples < before.examples:
        self._last[name] = look
      elif look.sent - before.sent > TIMING.heartbeat_interval / 2:
        seconds = look.sent - before.sent
        found[name] = ((look.steps - before.steps) / seconds,
                       (look.examples - before.examples) / seconds)
        self._last[name] = look
    return found


class JobSummaries(tf.train.SessionRunHook):
  """Writes the figures of the job; it stands behind the hooks that count."""

  def __init__(self, tracker: GlobalStepTracker, run: Membership, options: options_lib.Options):
    """Creates the hook of the chief, and adds its summaries to the default graph."""
    self._tracker, self._run, self._options = tracker, run, options
    self._directory = options.checkpoint_dir
    self._rates = WorkerRates()
    self._next = None
    for runner in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
      with tf.device(runner.queue.queue_ref.device):
        step_lib.summarize(QUEUES_TAG + runner.queue.name, tf.cast(runner.queue.size(), tf.float32))

  def after_create_session(self, session, coord):
    if self._next is None:
      write_summary(self._directory, text_summary(FLAGS_TAG, flags_text(
        self._options, len(self._run.cluster.ps), self._run.cluster.num_replicas)),
        self._tracker.value)
      self._next = time.monotonic() + TIMING.first_report

  def after_run(self, run_context, run_values):
    now = time.monotonic()
    if now >= self._next and self._tracker.asked:
      self._next = now + (TIMING.report_interval if self._write(now) else TIMING.first_report)

  def _write(self, now) -> bool:
    """Writes the rates that are known; returns whether any is."""
    members = [one for one in self._run.heartbeat.members() if one.state == MEMBER_TRAINING]
    found = self._rates.update(members, now)
    values = [(tag + name, rate) for name, rates in found.items()
              for tag, rate in zip((STEPS_TAG, EXAMPLES_TAG), rates)]
    if values:
      write_summary(self._directory, tf.Summary(value=[
        tf.Summary.Value(tag=tag, simple_value=value) for tag, value in values]),
        self._tracker.value)
    return bool(values)


def text_summary(tag: str, text: str) -> tf.Summary:
  """Returns a summary that TensorBoard shows under "Text"; the text is Markdown."""
  metadata = tf.SummaryMetadata(
    plugin_data=tf.SummaryMetadata.PluginData(plugin_name="text"))
  return tf.Summary(value=[tf.Summary.Value(
    tag=tag, metadata=metadata, tensor=tf.make_tensor_proto(text, tf.string))])


def flags_text(options: options_lib.Options, num_ps: int, num_workers: int) -> str:
  """Returns the options as Markdown: those that were given, then those that have their default."""
  given, default = [], []
  for option in options_lib.TABLE:
    if option.name in options._fields:
      value = getattr(options, option.name)
      if value != option.default:
        given.append(options_lib.as_flag(option.name, value))
      elif value is not None:
        default.append(options_lib.as_flag(option.name, value))
  blocks = ["tf1ps %s on TensorFlow %s, %d ps, %d workers" % (
    version.__version__, tf.version.VERSION, num_ps, num_workers)]
  for title, flags in (("Given:", given), ("By default:", default)):
    blocks += [title, "\n".join("    " + flag for flag in flags)]  # indented: it stays as it is
  return "\n\n".join(blocks)
