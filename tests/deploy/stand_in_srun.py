"""Stands in for srun: runs a step on the test's hosts, with the variables that Slurm sets for it.

It does as srun does where the script counts on it: cyclic ranks, --label, --wait=0,
--kill-on-bad-exit, signals to every process of a task, and the highest code of a task as its own.
STAND_IN_NODES is a list of [name, pid of a process on that host]; names are node1, node2 and so on.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading


def main(argv):
  """Runs the step; returns the exit code."""
  options = {}
  while argv and argv[0].startswith("--"):
    name, _, value = argv.pop(0)[2:].partition("=")
    options[name] = value
  assert set(options) <= {"wait", "kill-on-bad-exit", "label", "cpus-per-task"}, options
  assert options["wait"] == "0" and options["kill-on-bad-exit"] == "1" and "label" in options
  nodes = json.loads(os.environ["STAND_IN_NODES"])
  count = int(os.environ["SLURM_NTASKS"])
  sizes = [count // len(nodes) + (node < count % len(nodes)) for node in range(len(nodes))]
  env = dict(
    os.environ, SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS=str(count),
    SLURM_STEP_NODELIST="node[1-%d]" % len(nodes),
    SLURM_STEP_TASKS_PER_NODE=",".join(map(str, sizes)))
  tasks, lock = [], threading.Lock()
  assert os.environ["SLURM_DISTRIBUTION"] == "cyclic"
  for rank in range(count):
    local, node = divmod(rank, len(nodes))
    command = ["nsenter", "-t", str(nodes[node][1]), "-n", "-m", "-u", "sh", "-c",
               'cd "$0" && exec "$@"', os.getcwd(), *argv]
    tasks.append(subprocess.Popen(
      command, env=dict(env, SLURM_PROCID=str(rank), SLURM_NODEID=str(node),
                        SLURM_LOCALID=str(local)),
      start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))

  def signal_all(number, frame=None):
    for task in tasks:
      try:
        os.killpg(task.pid, number)  # a task is a session: every process of it
      except ProcessLookupError:
        pass

  def follow(rank):
    for line in tasks[rank].stdout:
      with lock:
        sys.stdout.buffer.write(b"%d: %s" % (rank, line))
        sys.stdout.flush()
    if tasks[rank].wait():
      signal_all(signal.SIGKILL)

  signal.signal(signal.SIGTERM, signal_all)
  threads = [threading.Thread(target=follow, args=[rank]) for rank in range(count)]
  for thread in threads:
    thread.start()
  for thread in threads:
    while thread.is_alive():
      thread.join(0.2)  # a signal's handler runs in between
  return max(code if code >= 0 else 128 - code for code in (task.wait() for task in tasks))


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
