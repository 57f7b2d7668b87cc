"""The running jobs that tf1ps-local has started here, for tf1ps-status and tf1ps-top.

A launcher has a temporary directory that names its process, with a file in it, and removes the
directory at its end. No program reads the directory of a launcher that was killed
(compat/temporary_files.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Dict, Iterator, List, NamedTuple, Optional

from tf1ps.compat import find_directories, temporary_directory
from tf1ps.state import RUN_FILE, RunStatus, parse_run_status

_PURPOSE, _FILE = "job", "job.json"


class RunningJob(NamedTuple):
  """A job of this user on this machine."""

  program: str
  pid: int  # the process id of the launcher
  started: float  # seconds since the epoch
  addresses: List[str]  # the addresses of its ps, or of its workers if it has no ps
  checkpoint_dir: str = ""  # the absolute path, or a URL
  tls_dir: str = ""

  def __str__(self):
    links = " --tls_dir=" + self.tls_dir if self.tls_dir else ""
    return "--ps_hosts=%s%s  # %s, process %d, since %s%s" % (
      self.addresses[0], links, self.program, self.pid,
      time.strftime("%H:%M:%S", time.localtime(self.started)),
      ", saves into " + self.checkpoint_dir if self.checkpoint_dir else "")


class Announcement:
  """Announces that this process runs a job; the job runs even if the file cannot be written."""

  def __init__(self, folder: str, program: str, checkpoint_dir: str, tls_dir: str):
    self._path = folder and os.path.join(folder, _FILE)
    self._job = RunningJob(program, os.getpid(), time.time(), [], locate(checkpoint_dir), tls_dir)

  def write(self, addresses: Dict[str, List[str]]) -> None:
    """Writes where the job's tasks are: {"ps": [...], "worker": [...]}."""
    job = self._job._replace(addresses=addresses["ps"] or addresses["worker"])
    with contextlib.suppress(OSError):
      with open(self._path and self._path + ".new", "w", encoding="utf-8") as file:
        json.dump(job._asdict(), file)
      os.replace(self._path + ".new", self._path)


@contextlib.contextmanager
def announced(program: str, checkpoint_dir: str, tls_dir: str) -> Iterator[Announcement]:
  """Yields the `Announcement` of this launcher, and withdraws the announcement at the end."""
  with contextlib.ExitStack() as stack:
    folder = ""
    with contextlib.suppress(OSError):  # no temporary directory can be written
      folder = stack.enter_context(temporary_directory(_PURPOSE))
    yield Announcement(folder, program, checkpoint_dir, tls_dir)


def find_jobs() -> List[RunningJob]:
  """Returns the running jobs in the order of their start."""
  jobs = []
  for folder in find_directories(_PURPOSE):
    with contextlib.suppress(OSError, ValueError, TypeError), open(
        os.path.join(folder, _FILE), encoding="utf-8") as file:
      jobs.append(RunningJob(**json.load(file)))
  return sorted(jobs, key=lambda job: job.started)


def read_run(checkpoint_dir: str) -> Optional[RunStatus]:
  """Returns the status of a directory's run, or None. Only a URL needs TensorFlow."""
  if "://" in checkpoint_dir:
    from tf1ps.state import RunFile

    return RunFile(checkpoint_dir).read()
  try:
    with open(os.path.join(checkpoint_dir, RUN_FILE), encoding="utf-8") as file:
      return parse_run_status(file.read())
  except (OSError, ValueError, TypeError):
    return None


def locate(checkpoint_dir: str) -> str:
  """Returns a name for a checkpoint directory that is the same in all processes; "" for ""."""
  remote = not checkpoint_dir or "://" in checkpoint_dir
  return checkpoint_dir if remote else os.path.realpath(checkpoint_dir)
