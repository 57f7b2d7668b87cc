"""The tasks of jobs of tf.estimator that are killed, come late, or train together."""
from __future__ import annotations

import json
import os
import threading

from tests.v1 import estimator_tasks

STEPS = 400
HELD_AT = 200  # who is here waits until the test has done what it wants to do


def train_paced(cluster, job, index, folder):
  """A task of a cluster by TF_CONFIG: trains the plane, slowly until the file `go` is there."""
  _set_task(cluster, job, index)
  import tf1ps.v1 as tf
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.estimator.train_and_evaluate(
    estimator_tasks.make(os.path.join(folder, "model"), experimental_max_worker_delay_secs=0),
    tf.estimator.TrainSpec(estimator_tasks.input_fn, max_steps=STEPS,
                           hooks=[_pace(tf, os.path.join(folder, "go"))]),
    tf.estimator.EvalSpec(lambda: estimator_tasks.input_fn(1), start_delay_secs=0,
                          throttle_secs=0))


def _set_task(cluster, job, index):
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def _pace(tf, go):
  """Returns a hook that says each step, and pauses as long as there is no file `go`."""
  class Pace(tf.train.SessionRunHook):
    def before_run(self, run_context):
      return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
      step = int(run_values.results)
      if os.path.exists(go):
        return
      print("made step %d" % step, flush=True)
      pause = threading.Event()
      pause.wait(0.02)
      while step >= HELD_AT and not os.path.exists(go):
        pause.wait(0.02)

  return Pace()
