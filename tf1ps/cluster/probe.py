"""The probe: who answers at a task's address, within a limit.

One call of the server's status service (see compat/worker_service.py) tells apart what a session
would only wait for: nobody there, a host that nobody knows, a process that listens and is silent,
something that is no TensorFlow server, the server of another task, and the server of a task that
was restarted since it was last seen.
"""

from __future__ import annotations

from typing import NamedTuple

import grpc

from tf1ps.compat import TIMING, CallError, get_status

UP = "up"
REFUSED = "refused"
SILENT = "silent"
NO_SUCH_HOST = "no such host"
NOT_TENSORFLOW = "no TensorFlow server"
ANOTHER_TASK = "another task"


class ProbeResult(NamedTuple):
  """What a probe saw at a task's address."""

  task: object  # the Task that was probed
  state: str  # one of the constants above
  detail: str  # the sentence for a person
  incarnation: int = 0  # of the server's first device; changes when the server is restarted

  @property
  def is_up(self) -> bool:
    return self.state == UP

  def __str__(self):
    return "%s at %s: %s" % (self.task.name, self.task.address, self.detail)


def probe_task(task, timeout: float = TIMING.probe_limit) -> ProbeResult:
  """Probes one task.

  Args:
    task: a `spec.Task`.
    timeout: seconds; a server that is up answers in a few milliseconds.

  Returns:
    What was seen; this function raises nothing for a task that is not there.
  """
  try:
    devices = get_status(task.address, timeout)
  except CallError as error:
    return _failure(task, error, timeout)
  names = sorted({task_name_of_device(device) for device in devices})
  if names != [task.name]:
    found = " and ".join(names) or "a server without devices"
    return ProbeResult(task, ANOTHER_TASK, "another task answers there: %s" % found)
  return ProbeResult(task, UP, UP, devices[0].incarnation)


def task_name_of_device(device) -> str:
  """The task that has a device of `worker_service.get_status`: "/job:ps/task:0"."""
  return device.name.split("/device:")[0].replace("/replica:0", "")


def _failure(task, error: CallError, timeout: float) -> ProbeResult:
  code, details = error.code, error.details.lower()
  if code == grpc.StatusCode.DEADLINE_EXCEEDED:
    return ProbeResult(task, SILENT, "silent (no answer within %.1f s)" % timeout)
  if code == grpc.StatusCode.UNAVAILABLE:
    if "dns resolution failed" in details or "errors resolving" in details:
      return ProbeResult(task, NO_SUCH_HOST, "no such host")
    if "connection refused" in details:
      return ProbeResult(task, REFUSED, "refused (nothing listens on that port)")
    if "http" in details or "settings frame" in details:
      return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server: it does not speak gRPC")
    return ProbeResult(task, REFUSED, "refused (%s)" % error.details.strip().splitlines()[0][:200])
  if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL):
    return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server: %s" % error.details)
  return ProbeResult(task, NOT_TENSORFLOW, "no TensorFlow server answers: %s" % error)
