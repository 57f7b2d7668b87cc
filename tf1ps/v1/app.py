"""`tf.app`: `run` ends the sessions that the program leaves open."""

from __future__ import annotations

import sys

import tensorflow.compat.v1 as tf

from tf1ps import session as _session
from tf1ps.v1 import flags  # noqa: F401  tf.app.flags
from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(__name__, tf.app)


def run(main=None, argv=None):
  """Runs a program's `main`, ends the sessions that it leaves open, and leaves Python.

  Args:
    main: the function; None for `main` of the script that was started.
    argv: the arguments; None for `sys.argv`.
  """
  main = main or sys.modules["__main__"].main

  def main_to_the_end(arguments):
    try:
      result = main(arguments)
    except BaseException as error:
      _session.end_open_sessions(error)
      raise
    _session.end_open_sessions(None)
    return result

  tf.app.run(main_to_the_end, argv)
