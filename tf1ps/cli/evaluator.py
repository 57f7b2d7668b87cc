"""tf1ps-evaluator: evaluates a job's checkpoints, and never connects to its cluster."""

from __future__ import annotations

import os

from absl import flags

from tf1ps.cli import app, tasks
from tf1ps.cluster import AUTO_RESOLVER
from tf1ps.compat import ENDED_BY_SIGNAL, TIMING, signal_exit_code
from tf1ps.program import check_checkpoint
from tf1ps.training import first_batch_size, parse_bad_record_policy

FLAGS = flags.FLAGS
_SUMMARY = ("evaluates each checkpoint of a job, writes the figures beside them, and leaves after "
            "the last.")


def run(argv, launched: bool = False) -> int:
  """Runs an evaluator; the arguments are those of `ps.run`, but an evaluator has no port."""
  return app.run("evaluator", _SUMMARY, list(argv), _follow, check=_check, launched=launched)


def _check() -> None:
  if not FLAGS.checkpoint_dir:
    raise app.UsageError("--checkpoint_dir is missing: an evaluator follows the checkpoints there")
  if FLAGS.checkpoint is not None:
    check_checkpoint(FLAGS.checkpoint_dir, FLAGS.checkpoint)


def _follow(program) -> int:
  # An evaluator needs no cluster, so `auto` ignores a Slurm step, which may be its own step.
  if (FLAGS.cluster_resolver != AUTO_RESOLVER or os.environ.get("TF_CONFIG") or FLAGS.ps_hosts
      or FLAGS.worker_hosts):
    tasks.task_cluster("evaluator")
  served = tasks.serve_metrics("evaluator", "evaluator", "evaluator", FLAGS.task_index or 0)
  app.prepare_tensorflow()
  from tf1ps.cluster import SignalWatch
  from tf1ps.monitoring import EvaluatorFigures
  from tf1ps.pipeline import BadRecords
  from tf1ps.program import follow_checkpoints, format_evaluation
  from tf1ps.state import RunFile

  config = tasks.make_config()
  app.open_devices(config)
  figures = [EvaluatorFigures()]
  if served is not None:
    served.show_evaluator(lambda: figures[-1])

  def note(count, evaluation):
    run = RunFile(FLAGS.checkpoint_dir).read()
    figures[:] = [EvaluatorFigures(
      count, evaluation.global_step, evaluation.metrics, "" if run is None else run.run)]

  with SignalWatch(lambda signum: None, limit=TIMING.force_exit_limit) as watch:
    outcome = follow_checkpoints(
      program, FLAGS.checkpoint_dir, heartbeat_timeout=FLAGS.heartbeat_timeout.silence,
      start_timeout=FLAGS.start_timeout, batch_size=first_batch_size(FLAGS.batch_size),
      config=config, interrupted=lambda: watch.signum is not None,
      bad=BadRecords(*parse_bad_record_policy(FLAGS.on_bad_record)),
      checkpoint=FLAGS.checkpoint, keep_best=FLAGS.keep_best, on_evaluation=note)
    signum = watch.signum
  code, reason = outcome.code, outcome.reason
  if signum is not None:
    code, reason = signal_exit_code(signum), ENDED_BY_SIGNAL + str(signum)
  last = "" if outcome.last is None else ", " + format_evaluation(outcome.last)
  app.last_line("evaluator: %d evaluation%s%s, %s" % (
    outcome.evaluations, "" if outcome.evaluations == 1 else "s", last, reason), code)
  return code
