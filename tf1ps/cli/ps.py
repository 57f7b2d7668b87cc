"""tf1ps-ps: runs a parameter server that ends with its job.

It starts a server, waits until the chief releases it, and exits with 0. It exits with 1 if the
workers of its job are lost. With --persistent it serves any number of jobs until a signal ends it.
After SIGTERM it serves until the chief has saved.
"""

from __future__ import annotations

import time

from absl import flags

from tf1ps.cli import app, errors, tasks
from tf1ps.cluster import SignalQueue, raise_exit
from tf1ps.compat import ENDED_BY_SIGNAL, EXIT_FAILED, EXIT_PORT_TAKEN, EXIT_RELEASED
from tf1ps.monitoring import answer_here

FLAGS = flags.FLAGS
_LAUNCHED_GRACE = 1.0  # a launcher ends the workers first, and after that no task saves
_SUMMARY = "a parameter server; it ends when its job has ended."


def run(argv, launched: bool = False) -> int:
  """Runs a ps.

  Args:
    argv: the arguments.
    launched: whether a launcher chose the port, and will choose another if it is taken.

  Returns:
    The exit code.
  """
  return app.run("ps", _SUMMARY, list(argv), lambda program: _serve(launched),
                 needs_program=False, launched=launched)


def _serve(launched: bool) -> int:
  with SignalQueue(raise_exit):  # `join` handles signals itself
    return _serve_job(launched)


def _serve_job(launched: bool) -> int:
  cluster = tasks.task_cluster("ps", launched)
  tasks.serve_metrics("ps %d" % cluster.task_index, "ps", "ps", cluster.task_index)
  app.prepare_tensorflow()
  from tf1ps.cluster import JobLostError, PortTakenError, ReleasedError

  began = time.monotonic()
  name, was_released = "ps %d" % cluster.task_index, False
  try:
    server = tasks.start_server(
      cluster, tasks.make_config(), persistent=FLAGS.persistent, start_timeout=FLAGS.start_timeout,
      grace=min(FLAGS.grace, _LAUNCHED_GRACE) if launched else FLAGS.grace)
    print("%s: serving at %s" % (name, cluster.task.address))
    with answer_here(cluster.task.address):
      server.join(exit=False)
    reason, code = server.end_reason, 0
  except PortTakenError as error:
    reason, code = str(error), EXIT_PORT_TAKEN if launched else EXIT_FAILED
  except JobLostError as error:
    reason, code = str(error), EXIT_FAILED
    was_released = isinstance(error, ReleasedError)
  except SystemExit as error:
    reason = ENDED_BY_SIGNAL + str(errors.signal_of(error))
    code = 0 if FLAGS.persistent else error.code  # only a signal ends a persistent ps
  app.last_line("%s: %s, %.1f s" % (name, reason, time.monotonic() - began), code)
  return EXIT_RELEASED if was_released and launched else code
