"""tf1ps-worker: runs a worker of a job; one of them is the chief."""

from __future__ import annotations

import sys

from absl import flags

from tf1ps.cli import app, errors, tasks
from tf1ps.compat import EXIT_FAILED, EXIT_PORT_TAKEN, EXIT_RELEASED, signal_exit_code

FLAGS = flags.FLAGS
_SUMMARY = ("a worker; worker 0, or the chief job's task, is the chief, which initialises, saves, "
            "evaluates and ends the job.")


def run(argv, launched: bool = False) -> int:
  """Runs a worker; the arguments are those of `ps.run`."""
  return app.run("worker", _SUMMARY, list(argv), lambda program: _train(program, launched))


def make_options(config=None):
  """Makes and checks the `Options` of the parsed flags."""
  from tf1ps.training import Options, check_options

  names = [name for name in Options._fields if name != "config"]
  made = Options(config=config, **{name: getattr(FLAGS, name) for name in names})
  check_options(made)
  return made


def _train(program, launched: bool) -> int:
  cluster = tasks.task_cluster("worker", launched)
  app.prepare_tensorflow()
  from tf1ps.cluster import PortTakenError, ReleasedError

  name = "%s %d%s" % (cluster.job_name, cluster.task_index, " (chief)" if cluster.is_chief else "")
  config = tasks.make_config(cluster)
  options = make_options(config)
  outcome, code, was_released = None, 0, False
  try:
    server = tasks.start_server(cluster, config, start_timeout=FLAGS.start_timeout)
    from tf1ps.session import JobFailedError
    from tf1ps.training import train

    try:
      if options.replication == "in_graph" and not cluster.is_chief:
        print("%s: serving at %s" % (name, cluster.task.address))
        server.join(exit=False)
        reason = server.end_reason
      else:
        outcome = train(program, server, options)
        reason = outcome.reason
    except JobFailedError as error:
      outcome, code = error.outcome, EXIT_FAILED
      reason = "%s, and the job failed: %s" % (outcome.reason, error)
  except PortTakenError as error:
    reason, code = str(error), EXIT_PORT_TAKEN if launched else EXIT_FAILED
  except (Exception, SystemExit, KeyboardInterrupt) as error:
    signum = errors.signal_of(error)
    if signum is not None:
      reason, code = "ended by signal %d" % signum, signal_exit_code(signum)
    else:
      was_released = isinstance(error, ReleasedError)
      errors.show_traceback(error, program, always=app.is_verbose())
      reason, code = errors.line(error, program), EXIT_FAILED
  if outcome is not None:
    _print_summary(outcome, cluster)
    parts = [
      "%d steps" % outcome.steps, "%d examples" % outcome.examples,
      outcome.skipped and "%d bad records skipped" % outcome.skipped,
      outcome.late and "%d more examples came too late" % outcome.late,
      outcome.staleness, outcome.traffic, "%.1f s" % outcome.seconds, reason]
    reason = ", ".join(part for part in parts if part)
  app.last_line("%s: %s" % (name, reason), code)
  return EXIT_RELEASED if was_released and launched else code


def _print_summary(outcome, cluster) -> None:
  """Prints the chief's lines about the whole job."""
  if outcome.evaluation is None:
    return
  from tf1ps.program import format_evaluation
  from tf1ps.state import MEMBER_SERVING

  own = (cluster.job_name, cluster.task_index)
  shares = ["%s %d: %d" % (m.job, m.index, m.examples) for m in outcome.members
            if m.role != "ps" and m.state != MEMBER_SERVING and (m.job, m.index) != own]
  shares.insert(0, "%s %d: %d" % (cluster.job_name, cluster.task_index, outcome.examples))
  again = "" if outcome.again is None else "; trained on more than once: %d" % outcome.again
  print("global step %d in %.1f s; examples by worker: %s%s" % (
    outcome.global_step, outcome.seconds, ", ".join(shares), again))
  print(format_evaluation(outcome.evaluation))


def main() -> None:
  """The console script."""
  app.leave(run(sys.argv[1:]))
