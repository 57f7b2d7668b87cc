"""Renders the files of jobs that run on the hosts themselves: Slurm's and systemd's."""

from __future__ import annotations

import math
import shlex
from typing import List

from tf1ps.deploy.quoting import fill, systemd_word, undollar
from tf1ps.deploy.request import File, Request, flags_of_task, header, ranks_of
from tf1ps.launch import cluster_flags

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
    num_tasks=len(request.tasks), indexes=ranks_of(request), resources="\n".join(lines),
    signal_before=request.kill_after + 30, srun_flags="".join(flag + " " for flag in srun),
    command=" \\\n".join(map(shlex.quote, flags)))
  return [File(request.name + ".sbatch", text)]


def render_systemd(request: Request) -> List[File]:
  """Returns the units: a unit for each role, with the index of the task behind the @."""
  command = [_TASK, "--cluster_resolver=flags", *cluster_flags(request.tasks),
             *flags_of_task(request)]
  limits, writable = [], ""
  if request.cpus:
    limits.append("CPUQuota=%d%%" % round(float(request.cpus) * 100))
  if request.memory:
    limits.append("MemoryMax=%dM" % request.memory_mib)
  if request.checkpoint_folder is not None:
    writable = "ReadWritePaths=" + systemd_word(request.checkpoint_folder)

  of_role = {  # the host, and the policy
    "ps": ("On the host of ps INDEX",
           "A ps that is killed is started again. Code 1: the job has failed, or nobody came."),
    "chief": ("On the host of worker 0", "A chief that is killed is started again. Code 1: its "
              "last line says why the job failed."),
    "worker": ("On the host of worker INDEX, from 1 to %d" % (request.num_workers - 1),
               "A worker that fails or is killed is started again, until it ends with 0."),
    "evaluator": ("On any host that has the checkpoints",
                  "An evaluator that fails or is killed is started again.")}
  files = []
  for role, _ in request.roles:
    host, policy = of_role[role]
    has_index = role in ("ps", "worker")
    flags = ["--job_name=" + ("worker" if role == "chief" else role)]
    flags += [] if role == "evaluator" else ["--task_index=" + ("%i" if has_index else "0")]
    words = [systemd_word(undollar(word)) for word in command] + flags
    unit = "%s-%s" % (request.name, role) + "@" * has_index
    files.append(File(unit + ".service", fill(
      "unit.service", header=header(request), host=host, start=unit + "INDEX" * has_index,
      description="%s of the job %s" % (role + " %i" if has_index else "the " + role, request.name),
      policy=policy, restart="on-abnormal" if role in ("ps", "chief") else "on-failure",
      command=" \\\n  ".join(words), kill_after=request.kill_after, limits="\n".join(limits),
      writable=writable)))
  return files
