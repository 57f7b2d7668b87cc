"""A status with everything in it, for the tests and for the picture of tf1ps-top."""
from __future__ import annotations

from tf1ps.cluster import from_cluster_spec
from tf1ps.monitoring import status
from tf1ps.state import CLUSTER_RECORD, ControlRecord, QueueSeen

JOBS = {"ps": ["10.0.0.1:2222", "10.0.0.2:2222"],
        "worker": ["10.0.0.3:2222", "10.0.0.4:2222", "10.0.0.5:2222", "10.0.0.6:2222"]}
TRAFFIC = {"/job:ps/task:0": [60000.0, 3, 60400.0, 6], "/job:ps/task:1": [41000.0, 3, 41000.0, 6]}


def member(job, index, age=0.4, **fields):
  """A record of a heartbeat, with its name."""
  role = "ps" if job == "ps" else fields.pop("role", "worker")
  container = fields.pop("container", "digits-1db7" if role != "ps" else "")
  value = dict(dict(
    job=job, index=index, role=role, host="node%d" % (index + (1 if job == "ps" else 3)),
    pid=4000 + index, run="r1", state="serving" if role == "ps" else "training", step=0,
    global_step=-1, examples=0, reason=""), **fields)
  return "member:%s:%s:%d" % (container, job, index), ControlRecord(value, age)


def records():
  """The control records of a job of which one worker is lost, and one has never come."""
  return dict([
    (CLUSTER_RECORD, ControlRecord(
      {job: {str(i): one for i, one in enumerate(there)} for job, there in JOBS.items()}, 60.0)),
    ("run:digits-1db7", ControlRecord(dict(
      id="r1", initialised=True, ended=False, failed=False, jobs={}, signature=[], writes=1), 9.0)),
    member("ps", 0), member("ps", 1, 0.7),
    member("worker", 0, 0.2, role="chief", step=610, global_step=1234, examples=19520,
           steps_per_second=41.0, examples_per_second=1312.0,
           figures={"loss": 0.2514, "age": [0.9, 3], "traffic": TRAFFIC,
                    "checkpoint": ["/jobs/digits", 1200, 30.8]}),
    member("worker", 1, 47.25, step=180, global_step=401, examples=5760, steps_per_second=40.0,
           examples_per_second=1280.0),
    member("worker", 2, 0.6, step=600, global_step=1230, examples=19200, steps_per_second=39.0,
           examples_per_second=1248.0, waits=[["batches", "/job:ps/task:0", "get(32)", 42.0]],
           figures={"loss": 0.31, "age": [1.1, 4], "recoveries": 1, "stalled": [42.0, 0.2]}),
  ])


def seen(found=None):
  """What `ask_status` reads of it."""
  return status._Seen(
    "ps 0 at 10.0.0.1:2222", from_cluster_spec(JOBS, "ps", 1), found or records(),
    {"/job:ps/task:1": "refused (nothing listens on that port)"},
    {"/job:ps/task:0": [
      QueueSeen("batches", "FIFOQueue", "digits-1db7", 0, 100),
      QueueSeen("results", "FIFOQueue", "digits-1db7", 7, -1),
      QueueSeen("others", "FIFOQueue", "another-job", 7, -1)]})


def make():
  """The status, at a fixed time."""
  return status.make_status(seen())._replace(time=1.6e9)
