"""What a task of the failure matrix does before it is one of tf1ps's programs."""
from __future__ import annotations

import ctypes
import json
import os
import socket
import threading

from tests.survival import matrix_gates as gates
from tests.training.job import with_end_timeout
from tf1ps.cli import evaluator, ps, worker
from tf1ps.session import run_directory
from tools.chaos import worlds

_PROGRAMS = {"ps": ps, "worker": worker, "evaluator": evaluator}
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def run(job, argv, in_network=None, output=None, place=None):
  """Runs a program of tf1ps as a task.

  Args:
    job: "ps", "worker" or "evaluator".
    argv: its arguments.
    in_network: a name, if it has a network of its own: it waits for the file `NAME wired`.
    output: the file of its output, if that is not the pipe.
    place: of the task in a world.
  """
  if output is not None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ["TMPDIR"] = os.path.dirname(output)
  if in_network is not None:
    enter_new_network()
    folder = gates.Gates(gates.of_process()["folder"])
    folder.write(in_network + " is apart")
    folder.wait(in_network + " is wired")
  worlds.enter(place)
  mine = gates.of_process()
  run_directory.TIMING = run_directory.TIMING._replace(**mine["timing"])
  gates.reach("start")
  return with_end_timeout(mine["end_timeout"], _PROGRAMS[job].run, list(argv))


def enter_new_network():
  """Gives this thread, and those that it starts, a network of their own; OSError without root."""
  libc = ctypes.CDLL(None, use_errno=True)
  if libc.unshare(_NEW_NETWORK):
    raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")


def hold_network(ready):
  """Keeps a network of its own, with a bridge that the driver makes in it, until it is killed."""
  enter_new_network()
  with open(ready, "w"):
    pass
  threading.Event().wait()


def show_world(place, directory):
  """Says what a task sees in its place of a world, and stays until it is ended."""
  worlds.enter(place)
  print("sees", json.dumps([os.getpid(), os.readlink("/proc/self"), socket.gethostname(),
                            sorted(os.listdir(directory)), worlds.process_id()]))
  while not os.path.exists(os.path.join(directory, "end")):
    threading.Event().wait(0.02)
  return 3
