from __future__ import annotations

import json

from tests.monitoring import traced_runs
from tf1ps.monitoring import make_chrome_trace
from tf1ps.monitoring.chrome_trace import task_name


def rows_of(*runs):
  trace = make_chrome_trace(runs, traced_runs.WORKER)
  return traced_runs.check(json.loads(json.dumps(trace)))


def test_devices_tensors_runs_and_waits_have_rows():
  rows = rows_of(traced_runs.run(), traced_runs.run(8, at=2000.0))
  assert set(rows) == {"worker 0, runs", "worker 0, CPU:0", "worker 0, tensors", "worker 0, waits",
                       "ps 0, CPU:0", "ps 0, tensors"}
  assert [(event["name"], event["ts"], event["dur"]) for event in rows["ps 0, CPU:0"][:2]] == [
    ("ReadVariableOp", 10.0, 2.0), ("ResourceApplyAdam", 80.0, 15.0)]
  assert [event["name"] for event in rows["worker 0, runs"]] == ["step 7", "step 8"]
  assert [event["name"] for event in rows["ps 0, tensors"][:2]] == [
    "send 400 bytes", "receive 200 KB"]
  assert rows["ps 0, tensors"][1]["args"] == {
    "tensor": "gradient", "bytes": 200000, "from": "worker 0", "to": "ps 0", "step": "step 7"}


def test_what_a_run_waited_for():
  waits = rows_of(traced_runs.run())["worker 0, waits"]
  assert [(event["name"], event["ts"], event["dur"]) for event in waits] == [
    ("messages", 0.0, 5.0), ("next on worker 0", 5.0, 5.0), ("next on worker 0", 15.0, 20.0),
    ("messages", 95.0, 5.0)]


def test_a_run_of_several_steps():
  run, = rows_of(traced_runs.run(8, 4))["worker 0, runs"]
  assert (run["name"], run["args"]["steps"]) == ("steps 8 to 11", 4)


def test_names_of_tasks():
  assert task_name("/job:ps/task:12") == "ps 12"
  assert task_name("/job:worker/replica:0/task:3") == "worker 3"
