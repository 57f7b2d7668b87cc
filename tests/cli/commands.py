"""How this room's tests run a program: in a process of its own, to its end.

What a forked process shall do beyond running a program stands here as well, since it must be in a
module that can be imported. absl's flags belong to a process, so each command line needs its own.
"""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
import tempfile

from absl import flags

from tests import harness, program_tasks
from tests.cluster_tasks import say
from tf1ps.cli import (
  app,
  evaluator,
  local,
  predict,
  ps,
  reset,
  ssh,
  status,
  task,
  tasks,
  top,
  worker,
)
from tf1ps.cli import flags as flags_lib
from tf1ps.cluster import Division
from tf1ps.training import options

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINE = "--program=" + str(ROOT / "tests" / "programs" / "line.py")
PROGRAMS = {"tf1ps-local": local, "tf1ps-ps": ps, "tf1ps-worker": worker,
            "tf1ps-evaluator": evaluator, "tf1ps-task": task, "tf1ps-predict": predict,
            "tf1ps-reset": reset, "tf1ps-ssh": ssh, "tf1ps-status": status, "tf1ps-top": top}
OF_PROGRAMS = [name for name in PROGRAMS if name not in (
  "tf1ps-reset", "tf1ps-ssh", "tf1ps-status", "tf1ps-top")]  # those with --program
# With these it goes on to the import of its program.
NEEDED_BY = {"tf1ps-predict": ["--checkpoint=" + __file__, "--output=none/"]}
NOBODY = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2"]  # where nobody listens

# A program that says when it is imported.
TALKING = """
from absl import flags
flags.DEFINE_string("greeting", "none", "What to say.")
print("imported")
def input_fn(mode, shard): pass
def model_fn(features, labels, mode): pass
"""


def of_program(name):
  """The short name of a program, as the options have it: "worker" for "tf1ps-worker"."""
  return name[len("tf1ps-"):]


def names_of(name):
  """The names of a program's flags."""
  return [option.name for option in options.of_program(of_program(name))]


def run(start, name, *argv, folder="/", **env):
  """Runs a program; returns its exit code and its lines.

  A program silences TensorFlow's log, but in a forked process TensorFlow was there before.
  """
  task = start(name, program_tasks.run_program, name, argv, folder, **env)
  return task.wait(), harness.without_logs(task.lines)


def run_with_temporary(temporary, name, argv):
  """Runs a program with another temporary directory of the system; returns its exit code."""
  tempfile.tempdir = temporary
  return program_tasks.run_program(name, argv, temporary)


def call(start, function, *args, **env):
  """Calls a function of this module in a process of its own; returns its lines."""
  task = start(function.__name__, function, *args, **env)
  assert task.wait() == 0, task.output
  return harness.without_logs(task.lines)


def write(folder, name, text):
  """Writes a program; returns the flag that names it."""
  (folder / name).write_text(text)
  return "--program=" + str(folder / name)


def show_flags(define_like, argv, names):
  """Parses a program's command line and prints flags as JSON."""
  def main(unused_program):
    print(json.dumps({name: getattr(flags.FLAGS, name) for name in names}))
    return 0

  return app.run(of_program(define_like), "shows flags.", argv, main)


def run_without(package, name, argv):
  """Runs a program as where a package is not installed; prints its exit code."""
  sys.modules[package] = None
  print("exit code %d" % PROGRAMS[name].run(list(argv)))


def show_environment(name, argv, variable):
  """Runs a program, whatever comes of it; prints an environment variable."""
  PROGRAMS[name].run(list(argv))
  print("%s=%s" % (variable, os.environ.get(variable)))


def show_zeros(name):
  """Prints the numbers among a program's flags that may be 0."""
  flags.FLAGS.set_gnu_getopt()
  flags_lib.define(of_program(name))
  for flag in [flags.FLAGS[each] for each in names_of(name)]:
    if flag.flag_type() in ("int", "float"):
      try:
        flags.FLAGS(["test", "--%s=0" % flag.name])
        print(flag.name)
      except flags.IllegalFlagValueError:
        pass
      flags.FLAGS.unparse_flags()


def show_tasks(argv, addresses, shares, note=None):
  """Has the launcher make its tasks; prints each as JSON. Shares of GPUs may have a note."""
  def main(unused_program):
    for made in local.make_tasks(
        addresses, local.with_defaults(argv), Division(shares, note), local.FLAGS.evaluator,
        local.metrics_addresses(len(addresses["ps"]))):
      print(json.dumps([made.name, made.function.__module__, made.args[0], made.env]))
    return 0

  return app.run("local", "makes tasks.", argv, main)


def show_imports(name, argv):
  """Runs a program, whatever comes of it; prints what it has imported of tf1ps and TensorFlow."""
  before = set(sys.modules)
  PROGRAMS[name].run(argv)
  print("new: " + json.dumps(sorted(
    module for module in set(sys.modules) - before if module.startswith(("tf1ps", "tensorflow")))))


def show_mode():
  print("v1 imported:", "tf1ps.v1" in sys.modules)


def show_config(argv):
  """Prints the config that a ps's flags make, as JSON."""
  def main(unused_program):
    config = tasks.make_config()
    print(json.dumps([
      config.inter_op_parallelism_threads, config.intra_op_parallelism_threads,
      config.gpu_options.per_process_gpu_memory_fraction,
      config.gpu_options.allow_growth if config.HasField("gpu_options") else None,
      config.allow_soft_placement]))
    return 0

  return app.run("ps", "shows its config.", argv, main, needs_program=False)


def show_options(argv):
  """Prints the options that a worker's flags make, a field a line."""
  def main(unused_program):
    for name, value in worker.make_options()._asdict().items():
      print("%s=%s" % (name, value))
    return 0

  return app.run("worker", "shows its options.", argv, main, needs_program=False)


def print_to(path):
  """Runs a program whose stdout is a file; its main prints, and returns 7."""
  os.dup2(os.open(path, os.O_WRONLY), 1)

  def main(unused_program):
    print("one line", flush=True)
    return 7

  return app.run("ps", "prints.", [], main, needs_program=False)


def be_first_process(argv):
  """Runs tf1ps-worker as process 1 of a process namespace, as in a container; says its id here."""
  if ctypes.CDLL(None).unshare(0x20000000):  # CLONE_NEWPID
    say("no namespace")
    return 0
  child = os.fork()
  if child == 0:
    os._exit(worker.run(argv) if os.getpid() == 1 else 3)
  say("process", child)
  return os.waitpid(child, 0)[1] >> 8
