"""What a task of the failure matrix does before it is one of tf1ps's programs."""
from __future__ import annotations

import ctypes
import os
import threading

from tests.survival import matrix_gates as gates
from tf1ps.cli import evaluator, ps, worker

_PROGRAMS = {"ps": ps, "worker": worker, "evaluator": evaluator}
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def run(job, argv, in_network=None, output=None):
  """Runs a program of tf1ps as a task.

  Args:
    job: "ps", "worker" or "evaluator".
    argv: its arguments.
    in_network: a name, if it has a network of its own: it waits for the file `NAME wired`.
    output: the file of its output, if that is not the pipe.
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
  gates.reach("start")
  return _PROGRAMS[job].run(list(argv))


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
