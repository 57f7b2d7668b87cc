"""The systems, each a way of training a model: its processes, and their command lines.

A peer is a script of peers/, which `tf1ps-run` may run as a legacy program. A line of tf1ps is
`tf1ps-ps` and `tf1ps-worker` with the options that a user would give.
"""
from __future__ import annotations

import os
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

from benchmarks import models
from tf1ps.cluster import visible_gpus
from tf1ps.launch import find_free_ports
from tf1ps.links import make_certificates

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONTAINER = "bench"  # the container of tf1ps's jobs
_FOREVER = 10 ** 9  # steps, or seconds
# The peers in which a task of the job "chief" coordinates the workers.
_COORDINATED = ("parameter_server_strategy", "coordinator")
RUN = (os.path.join("bin", "tf1ps_run.py"),)  # a runner: tf1ps-run
# The options of a line that a ps of tf1ps understands.
_OF_PS = ("--threads", "--tls_dir")


class System(NamedTuple):
  """One way of training."""

  name: str  # the name in the tables
  peer: str  # a script of peers/, or "tf1ps"
  options: Tuple[str, ...] = ()  # the options of its workers, which distinguish a table's lines
  workers: int = 1
  ps: int = 1
  minibatches_per_step: int = 1  # the minibatches of all workers for each global step
  python: str = sys.executable
  runner: Tuple[str, ...] = ()  # the command before the script, such as tf1ps-run
  env: Tuple[str, ...] = ()  # the environment of all its tasks: "NAME=value"
  has_gpu: bool = False  # whether its workers see this machine's GPUs

  @property
  def finds_its_pace(self) -> bool:
    """Whether it chooses by its first runs how many steps each run makes."""
    if self.peer == "tf1ps":
      return not any(option.startswith("--steps_per_execution=") for option in self.options)
    return self.peer == "estimator" and bool(self.runner)

  @property
  def variables(self) -> str:
    """The kind of the variables, "ref" or "resource"."""
    default = "resource" if self.peer in ("tf1ps", "bare") else "ref"
    return next((option.partition("=")[2] for option in self.options
                 if option.startswith("--variables=")), default)


class Task(NamedTuple):
  """One process of a system."""

  job: str  # "ps" or "worker"
  index: int
  command: List[str]
  counter: str  # the file in which it counts its steps; "": it does not count


class Run(NamedTuple):
  """The work of a system."""

  model: str
  folder: str  # for counters and logs
  link: object  # a links.Link
  steps: int = 0  # global steps; 0: without end
  seed: int = 0
  minibatches: int = 0  # minibatches to make, which are used in turn; 0: as few as timing needs


def environment(python: str = sys.executable) -> Dict[str, str]:
  """The environment of all processes of a benchmark: the same for all systems."""
  made = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="2", TF_ENABLE_ONEDNN_OPTS="0",
              CUDA_VISIBLE_DEVICES="-1", PYTHONPATH=ROOT,
              PYTHONUNBUFFERED="1")  # so that an error is the last line of an output
  for name in ("TF2_BEHAVIOR", "TF_CONFIG", "http_proxy", "https_proxy", "HTTP_PROXY",
               "HTTPS_PROXY"):
    made.pop(name, None)
  return made


def has_tensorflow(python: str) -> Optional[str]:
  """Returns the version of TensorFlow that a Python has, or None."""
  code = "import tensorflow.compat.v1 as tf; print(tf.__version__)"
  try:
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=environment(python), universal_newlines=True, timeout=120)
  except OSError:
    return None
  return done.stdout.split()[-1] if done.returncode == 0 else None


def tasks_of(system: System, run: Run) -> Tuple[List[Task], Dict[str, List[str]]]:
  """Returns the processes of a system, ps first, and the addresses of its jobs."""
  run = run._replace(minibatches=run.minibatches or models.timed_pool(models.get(run.model)))
  count = system.ps + system.workers + 1
  free = ["%d" % port for port in find_free_ports(count)]
  hosts = run.link.hosts
  addresses = {
    "ps": ["%s:%s" % (hosts["ps"], port) for port in free[:system.ps]],
    "worker": ["%s:%s" % (hosts["worker"], port) for port in free[system.ps:count - 1]],
    "chief": ["%s:%s" % (hosts["worker"], free[-1])]}
  jobs = [("ps", index) for index in range(system.ps)] if system.peer != "local" else []
  jobs += [("worker", index) for index in range(system.workers)]
  if system.peer in _COORDINATED:
    jobs.append(("chief", 0))  # the coordinator
  make = _tf1ps if system.peer == "tf1ps" else _peer
  return [make(system, run, job, index, addresses) for job, index in jobs], addresses


def _env(system: System, job: str) -> List[str]:
  """Returns the beginning of a task's command, which sets the task's environment."""
  made = list(system.env)
  if system.has_gpu and job != "ps":
    # Many systems use the GPU at the same time, so no process may take all of its memory.
    made += ["CUDA_VISIBLE_DEVICES=" + ",".join(visible_gpus()), "TF_FORCE_GPU_ALLOW_GROWTH=true"]
  return ["env", *made] if made else []


def _hosts(addresses, jobs):
  return ["--%s_hosts=%s" % (job, ",".join(addresses[job])) for job in jobs]


def _counts(system, job, index):
  """Whether a task counts steps: each worker its own steps, or one task the steps of all."""
  if system.peer in _COORDINATED:
    return job == "chief"
  return job == "worker" and (index == 0 or system.peer != "sync_replicas")


def _peer(system, run, job, index, addresses):
  counter = ""
  if _counts(system, job, index):
    counter = os.path.join(run.folder, "%s%d.steps" % (job, index))
  steps = run.steps
  if steps and system.peer in ("classic", "bare") and system.workers > 1:
    steps = run.steps // system.workers  # each worker counts its own steps
  jobs = ("ps", "worker")
  if system.peer in _COORDINATED:
    jobs += ("chief",)
  command = [
    *_env(system, job), system.python, *system.runner,
    os.path.join("benchmarks", "peers", system.peer + ".py"),
    *_hosts(addresses, jobs), "--job_name=" + job, "--task_index=%d" % index,
    "--model=" + run.model, "--seed=%d" % run.seed, "--minibatches=%d" % run.minibatches,
    "--steps=%d" % steps, "--counter=" + counter, *system.options]
  return Task(job, index, [*run.link.prefixes["ps" if job == "ps" else "worker"], *command],
              counter)


def _tf1ps(system, run, job, index, addresses):
  program = ["--program=" + os.path.join("benchmarks", "program.py")]
  common = _hosts(addresses, ("ps", "worker")) + [
    "--job_name=" + job, "--task_index=%d" % index, "--container=" + CONTAINER,
    "--heartbeat_timeout=%d" % _FOREVER, "--start_timeout=300"]
  if job == "ps":
    given = [option for option in _filled(system.options, run)
             if option.partition("=")[0] in _OF_PS]
  else:
    # The program has the model's own learning rate; a later option overrides an earlier option.
    given = program + [
      "--steps=%d" % (run.steps or _FOREVER), "--optimizer=sgd",
      "--learning_rate=%r" % models.get(run.model).learning_rate, "--bench_model=" + run.model,
      "--bench_seed=%d" % run.seed, "--bench_minibatches=%d" % run.minibatches,
      *_filled(system.options, run)]
  command = [*_env(system, job), system.python,
             os.path.join("bin", "tf1ps_%s.py" % job), *common, *given]
  return Task(job, index, [*run.link.prefixes[job], *command], "")


def _filled(options, run):
  """Returns the options, in which folders of this run replace {folder} and {tls}."""
  return [option.replace("{folder}", run.folder).replace("{tls}", tls_folder(run))
          for option in options]


def has_links(system: System) -> bool:
  """Whether the links between its tasks are encrypted."""
  return any(option.startswith("--tls_dir=") for option in system.options)


def tls_folder(run: Run) -> str:
  """Returns the folder of a certificate for all hosts of a run."""
  return os.path.join(run.folder, "certs", run.link.hosts["ps"])


def make_certificate(run: Run) -> None:
  """Makes the certificate in `tls_folder`, if it does not exist."""
  if not os.path.exists(tls_folder(run)):
    make_certificates(os.path.join(run.folder, "certs"),
                      [[run.link.hosts["ps"], run.link.hosts["worker"]]], 1)
