"""How a worker joins its run: the membership, the directory of the model, and the run's goal."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading

from tf1ps import session
from tf1ps.checkpoint import global_step_of_checkpoint, latest_checkpoint
from tf1ps.cluster import ExitWatch, raise_exit
from tf1ps.compat import keep_directory, make_directory
from tf1ps.state import MEMBER_FAILED
from tf1ps.training import epochs

_log = logging.getLogger("tf1ps")


def goal_of(options) -> str:
  """Returns the goal as flags; "" if no flag says when the job ends."""
  given = [(name, getattr(options, name)) for name in ("steps", "epochs", "examples")]
  return " ".join("--%s=%s" % (name, value) for name, value in given if value is not None)


def check_not_over(cluster, options) -> None:
  """Raises PartDoneError if the job had ended before a scheduler started this task again."""
  session.check_not_over(options.checkpoint_dir, cluster, goal_of(options))


@contextlib.contextmanager
def join(server, options):
  """Yields this worker's membership of the run; reports an error that no session has reported.

  The session has its own watch for signals. Before and after the session, a signal ends the main
  thread, and this function reports the signal.
  """
  run = session.Membership(server.record, options.checkpoint_dir)
  reported, lock = [], threading.Lock()

  def report(number):
    with lock:  # the watch's thread and this thread may report: the second waits for the first
      if not reported:
        reported.append(number)
        session.report_signal(run, number)

  with ExitWatch(report) as watch:
    if run.is_chief:
      run.heartbeat.set(epochs=epochs.read_finished(options))
    run.start()
    try:
      yield run
    except (session.JobFailedError, session.PartDoneError):
      raise
    except BaseException as error:
      if watch.number is not None:
        report(watch.number)  # the watch may not have reported the signal yet
        raise_exit(watch.number, None)
      if run.heartbeat.get("state") != MEMBER_FAILED:
        session.report_error(run, error)
      raise
    finally:
      run.stop()


@contextlib.contextmanager
def directory_of(run, options):
  """Yields the directory of the last checkpoint.

  Without --checkpoint_dir the chief has a temporary directory, for the evaluation. The directory is
  kept if an error ends the job after its training.
  """
  if options.checkpoint_dir or not run.is_chief:
    yield options.checkpoint_dir
    return
  directory = make_directory("model")
  _log.info("without --checkpoint_dir, the model is in %s until it is evaluated at the end, and "
            "then deleted", directory)
  try:
    yield directory
  except Exception:
    trained = latest_checkpoint(directory)
    if trained is None or not global_step_of_checkpoint(trained):
      shutil.rmtree(directory, ignore_errors=True)
    else:
      keep_directory(directory)
      _log.error("the trained model is kept in %s, as the job failed", trained)
    raise
  except BaseException:  # a signal
    shutil.rmtree(directory, ignore_errors=True)
    raise
  shutil.rmtree(directory, ignore_errors=True)
