"""The file that passes the result of a job to the Python call that started the job.

The chief writes its result (`write_result`). The launcher writes last: it adds its log directory
(`complete_result`), or replaces the content by the reason for a failure (`write_failure`,
`write_refusal`). The caller then reads the file (`read`). Nothing here imports TensorFlow or absl.
"""

from __future__ import annotations

import json
import logging
from typing import Dict, NamedTuple, Optional

from tf1ps.cli.errors import UsageError
from tf1ps.compat import Error

_log = logging.getLogger("tf1ps")


class JobResult(NamedTuple):
  """The result of a job that was run on this machine."""

  global_step: int  # the global step of the evaluated checkpoint: the updates of all workers
  metrics: Dict[str, float]  # the last evaluation's results: the program's metrics, and "loss"
  checkpoint: Optional[str]  # the path of the last checkpoint; None without checkpoint_dir
  examples: Dict[str, int]  # examples trained on, by worker: {"worker 0": 500, "worker 1": 500}
  seconds: float  # the time of the chief's training, without the start and the evaluation
  log_dir: Optional[str] = None  # the given directory, with a file for the output of each task


class LocalJobError(Error, RuntimeError):
  """A job on this machine failed: the text has the first task that failed and its last lines."""


def write_result(path: str, result: JobResult) -> None:
  """Writes the chief's result; if the file cannot be written, the job still continues."""
  _write(path, "result", result._asdict())


def complete_result(path: str, log_dir: Optional[str]) -> None:
  """Adds the launcher's log directory to the chief's result, if the chief has written a result."""
  result = _read(path).get("result")
  if result is not None:
    _write(path, "result", dict(result, log_dir=log_dir))


def write_failure(path: str, text: str) -> None:
  """Writes why a job failed."""
  _write(path, "failure", text)


def write_refusal(path: str, text: str) -> None:
  """Writes which argument was refused before the job began."""
  _write(path, "refusal", text)


def read(path: str) -> JobResult:
  """Reads the file after the end of the job.

  Raises:
    UsageError: an argument was refused.
    LocalJobError: the job failed.
  """
  content = _read(path)
  if "refusal" in content:
    raise UsageError(content["refusal"])
  if "result" not in content:
    raise LocalJobError(content.get("failure", (
      "the job has left no result: its launcher was killed, or could not write into the temporary "
      "directory. Its output says more.")))
  return JobResult(**content["result"])


def _write(path, kind, content):
  try:
    with open(path, "w", encoding="utf-8") as file:
      json.dump({kind: content}, file)
  except OSError as error:
    _log.error("the caller of this job gets no result: %s", error)


def _read(path):
  try:
    with open(path, encoding="utf-8") as file:
      return json.load(file)
  except (OSError, ValueError):
    return {}
