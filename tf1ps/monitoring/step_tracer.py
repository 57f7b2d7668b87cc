"""Traces some steps of a worker and writes the traces into files.

TensorFlow notes each operation of a traced run, including operations on ps and on other workers.
After the last traced step, `StepTracer` writes a Chrome trace (chrome_trace.py) and a page of text
(trace_summary.py). It also traces the steps that other threads of the worker make meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from typing import List, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.compat import error_line
from tf1ps.monitoring.chrome_trace import TracedRun, make_chrome_trace, task_name
from tf1ps.monitoring.trace_summary import summarize_trace
from tf1ps.transfer import on_one_clock, read_trace

_log = logging.getLogger("tf1ps")


class StepTracer(LifecycleHook):
  """Traces the steps of a worker and writes the files.

  Attributes:
    runs: the `TracedRun`s so far.
    paths: the files that were written.
  """

  def __init__(self, tracker: GlobalStepTracker, steps: Tuple[int, int], directory: str,
               worker: str):
    """Creates the hook.

    Args:
      tracker: counts this worker's steps; it must come before this hook.
      steps: the first of this worker's own steps in this process to trace, counted from 0, and the
        first step after the traced steps.
      directory: the directory of the files, which is created if it does not exist.
      worker: the task of the session's target, "/job:worker/task:0".
    """
    self._tracker, self._steps = tracker, steps
    self._directory, self._worker = directory, worker
    self._lock = threading.Lock()
    self._step, self._began, self._is_tracing, self._is_written = 0, 0.0, False, False
    self.runs: List[TracedRun] = []
    self.paths: List[str] = []

  def before_run(self, run_context):
    self._step = self._tracker.own_steps
    self._is_tracing = not self._is_written and (
      self._step < self._steps[1] and self._step + self._tracker.run_steps > self._steps[0])
    self._began = time.time()
    return tf.train.SessionRunArgs(None, options=_full_trace()) if self._is_tracing else None

  def after_run(self, run_context, run_values):
    if self._is_tracing:
      self._note(run_values.run_metadata, self._step, self._tracker.run_steps, self._began)
    if self._tracker.own_steps >= self._steps[1]:
      self._is_tracing = False
      self._write()

  def run(self, session, fetches, feed_dict=None, steps: int = 1):
    """Makes a run in another thread, traced if the loop's run is; returns the fetched values."""
    if not self._is_tracing:
      return session.run(fetches, feed_dict)
    step, began, metadata = self._tracker.own_steps, time.time(), tf.RunMetadata()
    results = session.run(fetches, feed_dict, options=_full_trace(), run_metadata=metadata)
    self._note(metadata, step, steps, began)
    return results

  def leave(self, session, finished: bool = True) -> None:
    """Writes the traces of a job that ends before the last step."""
    self._write()

  def _note(self, metadata, step, steps, began):
    ended = time.time()
    trace = read_trace(metadata)
    if trace.ops:
      with self._lock:
        self.runs.append(TracedRun(step, steps, 1e6 * began, 1e6 * ended, on_one_clock(trace)))

  def _write(self):
    with self._lock:
      if self._is_written:
        return
      self._is_written = True
      runs = sorted(self.runs, key=lambda run: run.began)
    if not runs:
      _log.warning("--trace_steps=%d:%d: nothing was traced, because this worker made %d steps",
                   *self._steps, self._tracker.own_steps)
      return
    base = os.path.join(self._directory, "trace_%s_steps_%d_%d" % (
      task_name(self._worker).replace(" ", "_"), *self._steps))
    try:
      tf.gfile.MakeDirs(self._directory)
      trace = json.dumps(make_chrome_trace(runs, self._worker), separators=(",", ":"))
      for ending, text in ((".json", trace), (".txt", summarize_trace(runs, self._worker))):
        with tf.gfile.GFile(base + ending, "w") as file:
          file.write(text)
        self.paths.append(base + ending)
    except Exception as error:  # a trace never ends training
      with contextlib.suppress(Exception):
        tf.gfile.Remove(base + ".json")  # half a file
      _log.warning("the trace is lost, and this task goes on: %s", error_line(error))
      return
    _log.info("the trace of %d runs is in %s (open it at https://ui.perfetto.dev or in "
              "chrome://tracing), and its summary in %s", len(runs), *self.paths)


def _full_trace():
  return tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
