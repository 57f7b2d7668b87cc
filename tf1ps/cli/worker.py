"""tf1ps-worker: runs a worker of a job; the worker may be the chief."""

from __future__ import annotations

import threading
from typing import Optional

from absl import flags

from tf1ps.cli import app, errors, results, tasks
from tf1ps.compat import (
  ENDED_BY_SIGNAL,
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
  EXIT_REFUSED,
  EXIT_RELEASED,
  WARNING,
  signal_exit_code,
)
from tf1ps.monitoring import answer_here

FLAGS = flags.FLAGS
_SUMMARY = ("a worker. The chief (worker 0, or the task of the job named chief) initialises, "
            "saves, evaluates and ends the job.")


def run(argv, launched: bool = False, result_path: Optional[str] = None) -> int:
  """Runs a worker.

  Args:
    argv, launched: as for `ps.run`.
    result_path: the file of results.py, or None.
  """
  return app.run("worker", _SUMMARY, list(argv),
                 lambda program: _train(program, launched, result_path),
                 launched=launched)


def make_options(config=None):
  """Makes and checks the `Options` of the parsed flags."""
  from tf1ps.training import Options, check_options
  from tf1ps.transfer import pack_bytes_of_process

  names = [name for name in Options._fields if name in FLAGS]
  options = Options(config=config, pack_bytes=pack_bytes_of_process(),
                    **{name: getattr(FLAGS, name) for name in names})
  check_options(options)
  return options


def _train(program, launched: bool, result_path: Optional[str]) -> int:
  cluster = tasks.task_cluster("worker", launched, check=make_options)
  tasks.take_gpus(cluster)
  tasks.serve_metrics("%s %d" % (cluster.job_name, cluster.task_index), cluster.job_name,
                      "chief" if cluster.is_chief else "worker", cluster.task_index)
  app.prepare_tensorflow()
  from tf1ps.cluster import PortTakenError, ReleasedError

  name = "%s %d%s" % (cluster.job_name, cluster.task_index, " (chief)" if cluster.is_chief else "")
  config = tasks.make_config(is_worker=True)
  options = make_options(config)
  outcome, code, for_launcher, trains = None, 0, None, threading.Event()
  try:
    server = tasks.start_server(
      cluster, config, start_timeout=FLAGS.start_timeout, grace=FLAGS.grace)
    from tf1ps.session import JobFailedError
    from tf1ps.training import train

    try:
      with answer_here("" if cluster.ps else cluster.task.address):
        if options.replication == "in_graph" and not cluster.is_chief:
          print("%s: serving at %s" % (name, cluster.task.address))
          server.join(exit=False)
          reason = server.end_reason
        else:
          outcome = train(program, server, options, on_session=trains.set)
          reason = outcome.reason
    except JobFailedError as error:
      outcome, code = error.outcome, EXIT_FAILED
      reason = "%s, and the job failed: %s" % (outcome.reason, error)
  except PortTakenError as error:
    reason, code = str(error), EXIT_PORT_TAKEN if launched else EXIT_FAILED
  except (Exception, SystemExit, KeyboardInterrupt) as error:
    signum = errors.signal_of(error)
    if signum is not None:
      reason, code = ENDED_BY_SIGNAL + str(signum), signal_exit_code(signum)
    else:
      if isinstance(error, ReleasedError):
        for_launcher = EXIT_RELEASED
      elif not trains.is_set() and errors.comes_again(error, program):
        for_launcher = EXIT_REFUSED
      errors.show_traceback(error, program, always=app.is_verbose())
      reason, code = errors.line(error, program), EXIT_FAILED
  if outcome is not None:
    _report(outcome, cluster, result_path)
    parts = [
      "%d steps" % outcome.steps, "%d examples" % outcome.examples,
      outcome.skipped and "%d bad records skipped" % outcome.skipped,
      outcome.late and "%d more examples came too late" % outcome.late,
      outcome.rolled_back and "%d steps rolled back" % outcome.rolled_back,
      outcome.staleness, outcome.traffic, "%.1f s" % outcome.seconds, reason]
    reason = ", ".join(part for part in parts if part)
  app.last_line("%s: %s" % (name, reason), code)
  return for_launcher if for_launcher is not None and launched else code


def _report(outcome, cluster, result_path) -> None:
  """Prints the chief's lines about the whole job, and writes its result."""
  if outcome.evaluation is None:
    return
  from tf1ps.program import format_evaluation
  from tf1ps.state import MEMBER_SERVING

  examples = {(cluster.job_name, cluster.task_index): outcome.examples}
  for member in outcome.members:
    if member.role != "ps" and member.state != MEMBER_SERVING:
      examples.setdefault((member.job, member.index), member.examples)
  examples = {"%s %d" % task: count for task, count in examples.items()}
  again = "" if outcome.again is None else "; trained on more than once: %d" % outcome.again
  print("global step %d in %.1f s; examples by worker: %s%s" % (
    outcome.global_step, outcome.seconds,
    ", ".join("%s: %d" % entry for entry in examples.items()), again))
  print(format_evaluation(outcome.evaluation))
  if outcome.warning:
    print(WARNING + outcome.warning)
  if result_path is not None:
    results.write_result(result_path, results.JobResult(
      outcome.global_step, outcome.evaluation.metrics,
      outcome.checkpoint, examples, outcome.seconds))
