"""tf1ps-local: runs a whole job on this machine, as processes on 127.0.0.1.

Each task gets the command line that a person would give it: the flags of the job, and its place in
the cluster.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from typing import Iterator, Optional, Tuple

from absl import flags

from tf1ps.cli import app, dry_run_report, results, running_jobs
from tf1ps.cli import links as links_lib
from tf1ps.cluster import NO_GPU
from tf1ps.compat import SCREEN_VARIABLE
from tf1ps.training import AUTO, GPU_ALL, GPU_GROW, of_program, parse_restart

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

  argv = list(argv)  # app.run adds --program; the tasks also need the flags of a --flagfile
  return app.run("local", _SUMMARY, argv,
                 lambda program: _run(FLAGS.read_flags_from_files(argv), result_path),
                 lazy=True, on_failure=note)


def _run(argv, result_path) -> int:
  from tf1ps.cli import worker
  from tf1ps.cluster import divide_gpus, outside_address, visible_gpus
  from tf1ps.launch import local_job, run_tasks
  from tf1ps.state import check_container_name

  ps_count = num_ps()
  if FLAGS.num_workers < 1:
    raise app.UsageError("--num_workers=%d: a job needs at least one worker" % FLAGS.num_workers)
  if FLAGS.evaluator and not FLAGS.checkpoint_dir:
    raise app.UsageError("--evaluator needs --checkpoint_dir: it follows the checkpoints there")
  if FLAGS.keep_best is not None and not FLAGS.evaluator:
    raise app.UsageError("--keep_best needs --evaluator, whose evaluations it follows")
  if FLAGS.tls_dir is not None:
    links_lib.check_launcher()
  has_end = bool(FLAGS.steps or FLAGS.epochs or FLAGS.examples)
  if FLAGS.dry_run and not has_end:
    FLAGS.steps = 1
  options = worker.make_options()
  if FLAGS.dry_run:
    if result_path is not None:
      raise app.UsageError("dry_run prints its report, and has no result: call tf1ps-local")
    return dry_run_report.run(FLAGS.program, options, ps_count, has_end)
  metrics = metrics_addresses(ps_count)
  if metrics:
    print("tf1ps-local: metrics: " + ", ".join(
      "%s at http://%s/metrics" % entry for entry in metrics.items()))
  if FLAGS.container is not None:
    check_container_name(FLAGS.container)
  log_dir = FLAGS.log_dir or _new_log_dir()
  gpus = divide_gpus(visible_gpus(), FLAGS.num_workers)
  if gpus.note:
    print("tf1ps-local: %s%s" % (gpus.note, ", and each takes memory as it needs it"
                                 if FLAGS.gpu_memory == AUTO else ""))
  outside = outside_address()
  if outside and FLAGS.tls_dir is None:
    print("tf1ps-local: the servers listen on every interface, also %s, like all TensorFlow "
          "servers: anyone who can connect can run anything here. See `tf1ps docs security`." % (
            outside))
  with running_jobs.announced(
      FLAGS.program, FLAGS.checkpoint_dir or "", FLAGS.tls_dir or "") as job:
    def make(addresses):
      job.write(addresses)
      return make_tasks(
        addresses, with_defaults(argv), gpus, FLAGS.evaluator, metrics, result_path)

    outcome = run_tasks(
      local_job(ps_count, FLAGS.num_workers, FLAGS.evaluator, save_limit=FLAGS.grace,
                max_restarts=parse_restart(FLAGS.restart),
                folds=FLAGS.verbosity not in ("debug", "info"),
                log_dir=log_dir, keeps_logs=bool(FLAGS.log_dir)),
      make, preload=("tensorflow.compat.v1", "tf1ps.cli.preload"), says_why=result_path is None)
  if result_path is not None and outcome.exit_code:
    results.write_failure(result_path, "\n".join([outcome.text, *outcome.report]))
  elif result_path is not None:
    results.complete_result(result_path, FLAGS.log_dir)
  return outcome.exit_code


def _new_log_dir():
  """Makes a directory for logs; returns None if no temporary directory can be written."""
  try:
    return tempfile.mkdtemp(prefix="tf1ps-log-")
  except OSError:
    print("tf1ps-local: no temporary directory can be written, so the job has no log files. Give "
          "--log_dir to keep them.")
    return None


def metrics_addresses(ps_count: int):
  """Returns {task: the address of its metrics}, from --metrics_port on; {} without the flag.

  Raises UsageError if there are too few ports, and MetricsError without prometheus_client.
  """
  from tf1ps.launch import describe_tasks
  from tf1ps.monitoring import check_prometheus_client

  if FLAGS.metrics_port is None:
    return {}
  check_prometheus_client()
  tasks = describe_tasks(ps_count, FLAGS.num_workers, FLAGS.evaluator)
  first = FLAGS.metrics_port
  if first.port + len(tasks) > 65536:
    raise app.UsageError("--metrics_port=%s: the job has %d tasks, and the ports end at 65535" % (
      first, len(tasks)))
  return {task.name: first._replace(port=first.port + i) for i, task in enumerate(tasks)}


def num_ps() -> int:
  """Returns the number of ps to start; raises UsageError if the replication cannot use it."""
  if FLAGS.replication == "all_reduce":
    if FLAGS.num_ps:
      raise app.UsageError("--num_ps=%d: --replication=all_reduce has no ps" % FLAGS.num_ps)
    return 0
  if FLAGS.num_ps is not None and FLAGS.num_ps < 1:
    raise app.UsageError("--num_ps=%d: %s replication needs at least one ps" % (
      FLAGS.num_ps, FLAGS.replication.replace("_", "-")))
  return FLAGS.num_ps or 1


def with_defaults(argv) -> list:
  """Returns the program's defaults and the arguments, because a ps does not read the program."""
  from tf1ps.cli import program_flags

  return program_flags.as_arguments(program_flags.without_given(
    program_flags.read(FLAGS.program), app.is_given)) + argv


def make_tasks(addresses, argv, gpus, evaluator: bool, metrics=None, result_path=None) -> list:
  """Makes the `LocalTask`s of a job.

  Args:
    addresses: {"ps": [...], "worker": [...]}.
    argv: the launcher's arguments, from which a task gets the flags of its program.
    gpus: the `cluster.Division` of the GPUs.
    evaluator: whether there is an evaluator.
    metrics: {task: the address of its metrics}, or None.
    result_path: the file of results.py, or None.
  """
  from tf1ps import launch
  from tf1ps.cli import evaluator as evaluator_lib
  from tf1ps.cli import ps, worker

  program = os.path.splitext(os.path.basename(FLAGS.program))[0]
  modules = {"ps": ps, "worker": worker, "evaluator": evaluator_lib}
  given = {job: flags_for(argv, job, keeps_others=job != "ps") for job in modules}
  tasks = launch.describe_tasks(len(addresses["ps"]), len(addresses["worker"]), evaluator,
                                addresses["ps"] + addresses["worker"])
  local_tasks = []
  for task in tasks:
    # TF_CONFIG in the environment describes another job.
    env = {"TF_CONFIG": None, "CUDA_VISIBLE_DEVICES": "-1",
           launch.TITLE_VARIABLE: "tf1ps %s %s" % (task.name, program)}
    words, more = list(given[task.job]), ()
    if task.job == "worker" and FLAGS.gpu_memory == AUTO and gpus.values[0] != NO_GPU:
      words.append("--gpu_memory=" + (GPU_GROW if gpus.note else GPU_ALL))
    if task.job != "evaluator":
      words += launch.cluster_flags(tasks) + task.flags
      if FLAGS.tls_dir is not None:
        env[launch.TLS_VARIABLE] = FLAGS.tls_dir
    if task.job == "worker":
      env["CUDA_VISIBLE_DEVICES"], more = gpus.values[task.index], (result_path,)
    if metrics:
      words.append("--metrics_port=%s" % (metrics[task.name],))
    if launch.is_terminal():
      env[SCREEN_VARIABLE] = "1"
    local_tasks.append(launch.LocalTask(
      task.name, modules[task.job].run, (words, True) + more, env))
  return local_tasks


# Flags that count tasks. For a task, flags of these names count the tasks that a scheduler starts.
_COUNTS = {"num_ps", "evaluator"}


def flags_for(argv, program: str, keeps_others: bool):
  """Returns the list of arguments that the launcher passes to a task.

  Args:
    argv: the launcher's arguments.
    program: the task's program, such as "worker".
    keeps_others: whether the task also gets --program, and flags of the user's program and absl.
  """
  ours = {option.name for option in of_program("local")}
  theirs = {option.name for option in of_program(program)} - _COUNTS
  return [text for name, texts in arguments(argv)
          if name in theirs and (name != "program" or keeps_others)
          or keeps_others and name not in ours for text in texts]


def arguments(argv) -> Iterator[Tuple[str, list]]:
  """Yields (flag, [argument]), or (flag, [argument, value]) if the value is a separate argument."""
  while argv:
    name, has_value, _ = argv[0].lstrip("-").partition("=")
    if name not in FLAGS and name.startswith("no") and name[2:] in FLAGS:
      name = name[2:]
    count = 2 if not has_value and name in FLAGS and not FLAGS[name].boolean else 1
    yield name, argv[:count]
    argv = argv[count:]


def main_for_caller(caller: int, result_path: str) -> None:
  """Runs a job for `from_python.run_local`.

  Args:
    caller: the process id of the caller; the job ends when the caller ends.
    result_path: the file of results.py.
  """
  from tf1ps.launch import die_with_parent, prepare_streams

  signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the calling thread may block signals
  die_with_parent(caller, signal.SIGTERM)
  prepare_streams()
  sys.exit(run(sys.argv[1:], result_path))
