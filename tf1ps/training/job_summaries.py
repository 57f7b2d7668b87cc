"""Writes the figures of a whole job into the chief's event files: see docs/monitoring.md.

1. Once: the options of the run, as a text.
2. Every few seconds: the steps and examples per second of each worker. They come from the
   heartbeats, which the chief reads anyway, so no further message is sent.
3. With the other summaries of the graph: the sizes of the queues of the input.
"""

from __future__ import annotations

import time
from typing import Dict, List

import tensorflow.compat.v1 as tf

from tf1ps import version
from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.compat import TIMING
from tf1ps.session import Membership, write_summary
from tf1ps.state import MEMBER_TRAINING, Member
from tf1ps.training import options as options_lib
from tf1ps.training import step as step_lib

FLAGS_TAG = "flags"
STEPS_TAG, EXAMPLES_TAG = "steps_per_sec/", "examples_per_sec/"
QUEUES_TAG = "queue_size/"


def worker_rates(members: List[Member]) -> Dict[str, float]:
  """Returns {tag: rate} of the workers that train, from their last heartbeats."""
  rates = {}
  for member in members:
    if member.role != "ps" and member.state == MEMBER_TRAINING and member.step:
      name = "%s_%d" % (member.job, member.index)
      rates[STEPS_TAG + name] = member.steps_per_second
      rates[EXAMPLES_TAG + name] = member.examples_per_second
  return rates


class JobSummaries(tf.train.SessionRunHook):
  """Writes the figures of the job; it must come after the hooks that count."""

  def __init__(self, tracker: GlobalStepTracker, run: Membership, options: options_lib.Options):
    """Creates the hook of the chief, and adds its summaries to the default graph."""
    self._tracker, self._run, self._options = tracker, run, options
    self._directory = options.checkpoint_dir
    self._has_rates = False
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
      self._has_rates |= self._write()
      self._next = now + (TIMING.report_interval if self._has_rates else TIMING.first_report)

  def _write(self) -> bool:
    """Writes the rates; returns whether any worker has a rate."""
    rates = worker_rates(self._run.heartbeat.members())
    if not self._has_rates and not any(rates.values()):
      return False  # no worker has sent a second heartbeat yet
    write_summary(self._directory, tf.Summary(value=[
      tf.Summary.Value(tag=tag, simple_value=value) for tag, value in rates.items()]),
      self._tracker.value)
    return True


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
    blocks += [title, "\n".join("    " + flag for flag in flags)]  # indented: Markdown code
  return "\n\n".join(blocks)
