"""tf1ps-ssh: runs a job on a few machines by the system's ssh client."""

from __future__ import annotations

import shutil

from absl import flags

from tf1ps.cli import app

FLAGS = flags.FLAGS
_SUMMARY = (
  "runs a command on the machines of a file of hosts, as the tasks of one job, by the system's ssh "
  "client: tf1ps-ssh hosts.txt -- COMMAND... Each line of the file has a host and its tasks, such "
  "as `node1 ps` or `node2 worker*2`. Each task gets a TF_CONFIG of its own, and {job}, {index}, "
  "{ps_hosts} and {worker_hosts} in the command are replaced. All tasks end together.")
_USAGE = "call it as tf1ps-ssh hosts.txt -- COMMAND..., and give the file of hosts"


def run(argv) -> int:
  """Runs a job; returns its exit code."""
  argv = list(argv)
  end = argv.index("--") if "--" in argv else len(argv)
  return app.run("ssh", _SUMMARY, argv[:end], lambda names: _run(names, argv[end + 1:]),
                 needs_program=False, takes_names=True)


def _run(names, command) -> int:
  from tf1ps.launch import read_hosts, run_on_hosts

  if len(names) != 1:
    raise app.UsageError("%s; there are %d before --" % (_USAGE, len(names)))
  if not command:
    raise app.UsageError("no command follows --: %s" % _USAGE)
  tasks = read_hosts(names[0], FLAGS.port)
  if shutil.which("ssh") is None:
    raise app.UsageError("PATH has no program ssh: install the ssh client")
  return run_on_hosts(tasks, command, FLAGS.grace, FLAGS.log_dir)
