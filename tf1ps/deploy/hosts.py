"""Renders the files of jobs that run on the hosts themselves: Slurm's and systemd's."""

from __future__ import annotations

import math
import shlex
from typing import List

from tf1ps.deploy.quoting import fill, systemd_word, undollar
from tf1ps.deploy.request import File, Request, flags_of_task, header, ranks_of

_TASK = "/opt/tf1ps/bin/tf1ps-task"  # systemd searches no PATH of a user's


def render_slurm(request: Request) -> List[File]:
  """Returns the script for sbatch."""
  cpus = int(request.cpus or 1)
  lines, srun = [], []
  if request.cpus:
    lines.append("#SBATCH --cpus-per-task=%d" % cpus)
    srun.append("--cpus-per-task=%d" % cpus)  # srun does not take it from sbatch
  if request.memory:
    lines.append("#SBATCH --mem-per-cpu=%dM" % math.ceil(request.memory_mib / cpus))
  if request.gpus:
    lines += ["# Slurm gives every task as many, also a ps, which hides them.",
              "#SBATCH --gpus-per-task=%d" % request.gpus]
  flags = ["--cluster_resolver=slurm", "--num_ps=%d" % request.num_ps]
  flags += ["--evaluator"] * request.evaluator + flags_of_task(request)
  text = fill(
    "slurm.sbatch", header=header(request), name=request.name, num_ps=request.num_ps,
    num_tasks=request.num_tasks, indexes=ranks_of(request), resources="\n".join(lines),
    signal_before=request.kill_after + 30, srun_flags="".join(flag + " " for flag in srun),
    command=" \\\n".join(map(shlex.quote, flags)))
  return [File(request.name + ".sbatch", text)]


def render_systemd(request: Request) -> List[File]:
  """Returns the units: one for each role, with the index of the task behind the @."""
  hosts = ["--worker_hosts=" + request.worker_hosts]
  hosts += ["--ps_hosts=" + request.ps_hosts] if request.num_ps else []
  command = [_TASK, "--cluster_resolver=flags", *hosts, *flags_of_task(request)]
  limits, writable = [], ""
  if request.cpus:
    limits.append("CPUQuota=%d%%" % round(float(request.cpus) * 100))
  if request.memory:
    limits.append("MemoryMax=%dM" % request.memory_mib)
  if request.checkpoint_folder is not None:
    writable = "ReadWritePaths=" + systemd_word(request.checkpoint_folder)

  def unit(file, host, start, description, policy, restart, own_flags):
    words = [systemd_word(undollar(word)) for word in command] + own_flags
    return File("%s-%s.service" % (request.name, file), fill(
      "unit.service", header=header(request), host=host, start=request.name + "-" + start,
      description=description, policy=policy, restart=restart, command=" \\\n  ".join(words),
      kill_after=request.kill_after, limits="\n".join(limits), writable=writable))

  last = request.num_workers - 1
  units = [
    unit("ps@", "On the host of ps INDEX", "ps@INDEX", "ps %%i of the job %s" % request.name,
         "A ps that is killed is started again. Code 1: the job has failed, or nobody came.",
         "on-abnormal", ["--job_name=ps", "--task_index=%i"]),
    unit("chief", "On the host of worker 0", "chief", "the chief of the job %s" % request.name,
         "A chief that is killed is started again. Code 1: its last line says why the job failed.",
         "on-abnormal", ["--job_name=worker", "--task_index=0"]),
    unit("worker@", "On the host of worker INDEX, from 1 to %d" % last, "worker@INDEX",
         "worker %%i of the job %s" % request.name,
         "A worker that fails or is killed is started again. One that is done ends with 0.",
         "on-failure", ["--job_name=worker", "--task_index=%i"]),
    unit("evaluator", "On any host that has the checkpoints", "evaluator",
         "the evaluator of the job %s" % request.name,
         "An evaluator that fails or is killed is started again.", "on-failure",
         ["--job_name=evaluator"])]
  wanted = [request.num_ps > 0, True, last > 0, request.evaluator]
  return [file for file, is_wanted in zip(units, wanted) if is_wanted]
