"""tf1ps-local: runs a whole job on this machine, as processes on 127.0.0.1.

Each task gets the same command line as one that is started by hand: the flags of the job, and its
place in the cluster.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from typing import Optional

from absl import flags

from tf1ps.cli import app, results
from tf1ps.cli import links as links_lib
from tf1ps.compat import SCREEN_VARIABLE
from tf1ps.training import DEFAULT_MAX_RESTARTS, RESTART_NEVER, of_program

FLAGS = flags.FLAGS
_SUMMARY = "trains a program on a cluster of processes on this machine."


def run(argv, result_path: Optional[str] = None) -> int:
  """Runs a job on this machine.

  Args:
    argv: the arguments.
    result_path: the file of results.py, if a Python call has started the job.

  Returns:
    The exit code.
  """
  def note(error, text):
    if result_path is not None:
      refused = isinstance(error, ValueError)
      (results.write_refusal if refused else results.write_failure)(result_path, text)

  # The tasks need the flags of a --flagfile as well.
  return app.run("local", _SUMMARY, list(argv),
                 lambda program: _run(FLAGS.read_flags_from_files(list(argv)), result_path),
                 lazy=True, on_failure=note)


def _run(argv, result_path) -> int:
  from tf1ps.cli import worker
  from tf1ps.cluster import outside_address
  from tf1ps.launch import board_task, divide_gpus, run_tasks, visible_gpus
  from tf1ps.state import check_container_name
  from tf1ps.training import check_summary_image

  ps_count = num_ps()
  if FLAGS.num_workers < 1:
    raise app.UsageError("--num_workers=%d: a job needs at least one worker" % FLAGS.num_workers)
  if FLAGS.evaluator and not FLAGS.checkpoint_dir:
    raise app.UsageError("--evaluator needs --checkpoint_dir: it follows the checkpoints there")
  if FLAGS.evaluator and FLAGS.eval_steps is not None:
    raise app.UsageError("--eval_steps cannot go with --evaluator, which evaluates every "
                         "checkpoint: give --save_checkpoints_steps")
  for name in ("keep_best", "early_stopping"):
    if getattr(FLAGS, name) is not None and not FLAGS.evaluator:
      raise app.UsageError("--%s needs --evaluator, whose evaluations it follows" % name)
  _check_board()
  if FLAGS.tls_dir is not None:
    links_lib.check_launcher()
  max_restarts = _max_restarts()
  worker.make_options()
  check_summary_image(FLAGS.summary_image)
  metrics = metrics_addresses(ps_count)
  if metrics:
    print("tf1ps-local: metrics: " + ", ".join(
      "%s at http://%s/metrics" % each for each in metrics.items()))
  if FLAGS.container is not None:
    check_container_name(FLAGS.container)
  log_dir = FLAGS.log_dir or _new_log_dir()
  shares, line = divide_gpus(visible_gpus(), FLAGS.num_workers)
  if line:
    print("tf1ps-local: " + line)
  outside = outside_address()
  if outside and FLAGS.tls_dir is None:
    print("tf1ps-local: the servers listen on every interface, also %s, like all TensorFlow "
          "servers: anyone who can connect can run anything here. See docs/security.md." % outside)
  outcome = run_tasks(
    lambda addresses: make_tasks(
      addresses, with_defaults(argv), shares, FLAGS.evaluator, metrics, result_path),
    ps_count, FLAGS.num_workers, FLAGS.evaluator, log_dir,
    preload=("tensorflow.compat.v1", "tf1ps.cli.preload"),
    quiet=FLAGS.verbosity not in ("debug", "info"), keeps_logs=bool(FLAGS.log_dir),
    max_restarts=max_restarts, save_limit=FLAGS.grace,
    beside=[board_task(FLAGS.checkpoint_dir)] if FLAGS.tensorboard else [])
  if result_path is not None and outcome.exit_code:
    results.write_failure(result_path, "\n".join([outcome.text, *outcome.report]))
  elif result_path is not None:
    results.complete_result(result_path, FLAGS.log_dir)
  return outcome.exit_code


def _new_log_dir():
  """Makes a directory for logs; returns None where no temporary directory can be written."""
  try:
    return tempfile.mkdtemp(prefix="tf1ps-log-")
  except OSError:
    print("tf1ps-local: no temporary directory can be written, so the job has no log files. Give "
          "--log_dir to keep them.")
    return None


def _check_board() -> None:
  """Raises UsageError if --tensorboard cannot work."""
  from tf1ps.launch import has_board

  if not FLAGS.tensorboard:
    return
  if not FLAGS.checkpoint_dir:
    raise app.UsageError("--tensorboard needs --checkpoint_dir: it shows the event files there")
  if not has_board():
    raise app.UsageError("--tensorboard needs the package tensorboard: run "
                         "pip install 'tf1ps[tensorboard]'")


def _max_restarts() -> int:
  """How often each task is started again; raises UsageError."""
  if FLAGS.restart == RESTART_NEVER:
    if FLAGS.max_restarts is not None:
      raise app.UsageError("--max_restarts=%d needs --restart=on_failure" % FLAGS.max_restarts)
    return 0
  return DEFAULT_MAX_RESTARTS if FLAGS.max_restarts is None else FLAGS.max_restarts


def metrics_addresses(ps_count: int):
  """The address of the metrics of each task, by its name: --metrics_port and those after it; or {}.

  Raises UsageError if the ports go too far, and MetricsError without prometheus_client.
  """
  from tf1ps.monitoring import check_prometheus_client

  if FLAGS.metrics_port is None:
    return {}
  check_prometheus_client()
  names = ["ps %d" % i for i in range(ps_count)]
  names += ["worker %d" % i for i in range(FLAGS.num_workers)]
  names += ["evaluator 0"] if FLAGS.evaluator else []
  first = FLAGS.metrics_port
  if first.port + len(names) > 65536:
    raise app.UsageError("--metrics_port=%s: the job has %d tasks, and the ports end at 65535" % (
      first, len(names)))
  return {name: first._replace(port=first.port + i) for i, name in enumerate(names)}


def num_ps() -> int:
  """The number of ps to start; raises UsageError if the replication cannot use it."""
  if FLAGS.replication == "all_reduce":
    if FLAGS.num_ps:
      raise app.UsageError("--num_ps=%d: --replication=all_reduce has no ps" % FLAGS.num_ps)
    return 0
  if FLAGS.num_ps is not None and FLAGS.num_ps < 1:
    raise app.UsageError("--num_ps=%d: %s replication needs at least one ps" % (
      FLAGS.num_ps, FLAGS.replication.replace("_", "-")))
  return FLAGS.num_ps or 1


def with_defaults(argv) -> list:
  """The arguments behind the program's defaults, also for a ps, which does not know the program."""
  from tf1ps.cli import program_flags

  return program_flags.as_arguments(program_flags.without_given(
    program_flags.read(FLAGS.program), app.is_given)) + argv


def make_tasks(addresses, argv, shares, evaluator: bool, metrics=None, result_path=None) -> list:
  """Makes the `LocalTask`s of a job.

  Args:
    addresses: {"ps": [...], "worker": [...]}.
    argv: the launcher's arguments, from which each task gets those of its program.
    shares: the GPUs of each worker, as CUDA_VISIBLE_DEVICES has them.
    evaluator: whether there is an evaluator.
    metrics: the address of the metrics of each task, by its name; None: there are none.
    result_path: the file of results.py, or None.
  """
  from tf1ps.cli import evaluator as evaluator_lib
  from tf1ps.cli import ps, worker
  from tf1ps.launch import TLS_VARIABLE, LocalTask, is_terminal

  hosts = ["--%s_hosts=%s" % (job, ",".join(there)) for job, there in addresses.items() if there]
  kinds = [("ps", ps, len(addresses["ps"]), hosts),
           ("worker", worker, len(addresses["worker"]), hosts),
           ("evaluator", evaluator_lib, 1 if evaluator else 0, [])]
  made = []
  for job, module, count, cluster in kinds:
    given = flags_for(argv, job, keeps_others=job != "ps")
    for index in range(count):
      place = ["--job_name=" + job, "--task_index=%d" % index] if cluster else []
      if metrics:
        place.append("--metrics_port=%s" % (metrics["%s %d" % (job, index)],))
      # TF_CONFIG in the environment describes another job.
      env = {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": shares[index] if job == "worker" else "-1"}
      if job != "evaluator" and FLAGS.tls_dir is not None:
        env[TLS_VARIABLE] = FLAGS.tls_dir
      if is_terminal():
        env[SCREEN_VARIABLE] = "1"
      made.append(LocalTask(
        "%s %d" % (job, index), module.run,
        (given + cluster + place, True) + ((result_path,) if job == "worker" else ()), env))
  return made


# They count tasks; a task has flags of these names for the tasks that a scheduler starts.
_COUNTS = {"num_ps", "evaluator"}


def flags_for(argv, program: str, keeps_others: bool):
  """The arguments of the launcher that it passes to a task.

  Args:
    argv: the launcher's arguments.
    program: the task's program, such as "worker".
    keeps_others: whether the task also gets --program, and flags of the user's program and absl.

  Returns:
    A list of arguments.
  """
  ours = {option.name for option in of_program("local")}
  theirs = {option.name for option in of_program(program)} - _COUNTS
  kept, position = [], 0
  while position < len(argv):
    name, width = argument(argv[position])
    if name in theirs and not (name == "program" and not keeps_others) \
        or keeps_others and name not in ours:
      kept += argv[position:position + width]
    position += width
  return kept


def argument(text):
  """The flag of an argument, and the number of arguments that it takes: 2 if a value follows."""
  name, has_value, _ = text.lstrip("-").partition("=")
  if name not in FLAGS and name.startswith("no") and name[2:] in FLAGS:
    name = name[2:]
  takes_next = not has_value and name in FLAGS and not FLAGS[name].boolean
  return name, 2 if takes_next else 1


def main() -> None:
  """The console script."""
  sys.exit(run(sys.argv[1:]))


def main_for_caller(caller: int, result_path: str) -> None:
  """Runs a job for `calls.run_local`.

  Args:
    caller: the process id of the caller, with which the job ends.
    result_path: the file of results.py.
  """
  from tf1ps.launch import die_with_parent, prepare_streams

  signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a thread may have called that blocks some
  die_with_parent(caller, signal.SIGTERM)
  prepare_streams()
  sys.exit(run(sys.argv[1:], result_path))
