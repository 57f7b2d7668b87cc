"""Makes the cluster, the config and the server of a task from its parsed flags."""

from __future__ import annotations

import logging
import os
from typing import Callable

from absl import flags

from tf1ps.cli import app, errors
from tf1ps.cli import links as links_lib
from tf1ps.cluster import (
  AUTO_RESOLVER,
  JobCounts,
  exposure_warning,
  grpc_environment,
  make_session_config,
  names_to_dial,
  resolve_cluster,
  resolve_environment,
  split_hosts,
  take_share,
  wait_for_names,
)
from tf1ps.compat import EXIT_FAILED, held_back, rename_json_lines
from tf1ps.state import check_container_name, container_of_job
from tf1ps.training import AUTO, GPU_ALL, parse_gpu_memory

FLAGS = flags.FLAGS
ALL_REDUCE = "all_reduce"
_HOSTS = ("ps_hosts", "worker_hosts")
_log = logging.getLogger("tf1ps")


def find_cluster(flags_of=FLAGS, is_task: bool = True):
  """Asks the resolver of --cluster_resolver.

  Args:
    flags_of: the parsed flags.
    is_task: whether this process is a task of the job.

  Returns:
    The `FoundCluster`; None if nothing describes a cluster.
  """
  def value(name):
    return flags_of[name].value if name in flags_of else None

  counts = JobCounts(value("num_ps"), bool(value("evaluator")), value("port"),
                     default_ps=0 if value("replication") == ALL_REDUCE else 1)
  return resolve_environment(value("cluster_resolver"), os.environ,
                             any(split_hosts(value(name)) for name in _HOSTS), counts, is_task)


def described(environment) -> dict:
  """Returns the result of `find_cluster` as arguments of `resolve_cluster`."""
  return {} if environment is None else {
    "tf_config": environment.tf_config, "source": environment.source}


def task_cluster(implied_job: str, launched: bool = False,
                 check: Callable[[], object] = lambda: None):
  """Makes the cluster of this task, and prints it, unless a launcher has started the task.

  Args:
    implied_job: the job that the program runs.
    launched: whether a launcher has started this task. The launcher has printed the warning that
      anyone can connect, and the cluster would be repeated in the output of each task.
    check: called before anything is printed; raises an error for wrong flags.

  Returns:
    The `Cluster`.
  """
  replication = FLAGS.replication if "replication" in FLAGS else None  # an evaluator needs no ps
  environment = find_cluster()
  cluster = resolve_cluster(
    ps_hosts=FLAGS.ps_hosts, worker_hosts=FLAGS.worker_hosts, job_name=FLAGS.job_name,
    task_index=FLAGS.task_index, job_workers=FLAGS.job_workers, implied_job=implied_job,
    **described(environment),
    needs_ps=replication not in (None, ALL_REDUCE) and (
      replication.replace("_", "-") + " replication"))
  if replication == ALL_REDUCE and cluster.ps:
    raise errors.UsageError("--replication=all_reduce has no ps, but the cluster has %d: leave "
                            "out the job ps" % len(cluster.ps))
  if FLAGS["num_ps"].present and cluster.jobs and FLAGS.num_ps != len(cluster.ps):
    raise errors.UsageError("--num_ps is %d, but the cluster from %s has %d ps: make them the "
                            "same, or leave one out" % (
                              FLAGS.num_ps, cluster.source, len(cluster.ps)))
  rename_json_lines("%s %d" % (cluster.job_name, cluster.task_index))
  links = links_lib.check(cluster) if implied_job != "evaluator" else None
  container = job_container(cluster)
  check()
  if FLAGS.cluster_resolver == AUTO_RESOLVER and environment.is_scheduler:
    _log.info("%s", environment)
  if not launched or app.is_verbose():
    _log.info("%s%s", cluster.describe(), "\ncontainer %s" % container if container else "")
  if links:
    _log.info("%s", links)
  warning = None if launched or links else exposure_warning(cluster)
  if warning:
    _log.warning("%s", warning)
  return cluster


def job_container(cluster):
  """Returns the container of this task's job: --container, or a name that all tasks derive alike.

  Returns None for a ps without --container, which takes the container of its first job.
  """
  if FLAGS.container is not None:
    return check_container_name(FLAGS.container)
  return None if cluster.job_name == "ps" else container_of_job(cluster.job_workers)


def take_gpus(cluster) -> None:
  """Limits a worker to its share of its host's GPUs, if no launcher or scheduler divided them."""
  division = take_share(cluster)
  if division is not None and division.note is None and FLAGS.gpu_memory == AUTO:
    FLAGS.gpu_memory = GPU_ALL  # no other worker uses its GPUs


def make_config(is_worker: bool = False):
  """Makes the config of this task's server and sessions.

  Args:
    is_worker: whether the task is a worker, which may have clones.
  """
  config = make_session_config(
    inter_op_parallelism_threads=FLAGS.threads.inter_op,
    intra_op_parallelism_threads=FLAGS.threads.intra_op,
    **parse_gpu_memory(FLAGS.gpu_memory))
  if not is_worker or FLAGS.num_clones == 1:
    return config
  from tf1ps.replication import with_cpu_devices

  return with_cpu_devices(FLAGS.num_clones, config)


def serve_metrics(name: str, job: str, role: str, index: int):
  """Serves the metrics of this task, if --metrics_port is given; call it before other work.

  Args:
    name: the task's name in its output: "ps 0".
    job, role, index: the labels of its metrics.

  Returns:
    The `MetricsServer`, or None.
  """
  if FLAGS.metrics_port is None:
    return None
  from tf1ps.monitoring import MetricsServer

  served = MetricsServer(links_lib.inner_address(FLAGS.metrics_port), job, role, index)
  links_lib.open_address(FLAGS.metrics_port)
  print("%s: metrics at http://%s/metrics" % (name, FLAGS.metrics_port))
  return served


def start_server(cluster, config, **kwargs):
  """Imports TensorFlow and starts this task's server, once the names of the other hosts resolve."""
  wait_for_names(names_to_dial(cluster), FLAGS.start_timeout)
  os.environ.update(grpc_environment())
  import tf1ps

  def end(reason):
    try:
      app.last_line("%s %d: %s" % (cluster.job_name, cluster.task_index, reason), EXIT_FAILED)
    finally:
      os._exit(EXIT_FAILED)  # nothing can be saved without the ps

  links_lib.open_port(cluster, end)
  with held_back(FLAGS.verbosity):  # the server logs its search for GPUs
    return tf1ps.Server(
      cluster, config=config, container=job_container(cluster),
      heartbeat_timeout=FLAGS.heartbeat_timeout.silence,
      recovery_timeout=FLAGS.heartbeat_timeout.absence, **kwargs)
