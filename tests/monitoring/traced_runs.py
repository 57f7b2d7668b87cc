"""A traced run that tests make by hand, and the rules that every Chrome trace keeps."""
from __future__ import annotations

import collections

from tf1ps.monitoring import TracedRun
from tf1ps.transfer import Ran, Trace, Transfer

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def ran(name, task, start, end, kind="MatMul", needs=()):
  return Ran(name, kind, list(needs), task, start, end, "CPU:0")


def run(step=7, steps=1, at=1000.0):
  """Waits 10 for the ps, 20 for a batch; then a product, the gradient's way, the update."""
  return TracedRun(step, steps, at, at + 100, Trace(
    [Transfer("read", 400, PS, WORKER, at + 12, at + 15),
     Transfer("gradient", 200000, WORKER, PS, at + 60, at + 80)],
    [ran("read", PS, at + 10, at + 12, "ReadVariableOp"),
     ran("next", WORKER, at + 5, at + 35, "IteratorGetNext"),
     ran("product", WORKER, at + 35, at + 60, needs=["read_S1", "next"]),
     ran("other", WORKER, at + 50, at + 55),
     ran("update", PS, at + 80, at + 95, "ResourceApplyAdam", ["gradient_S3"])]))


def check(trace):
  """Holds the rules; returns {process's name: its slices}."""
  events = trace["traceEvents"]
  names = {event["pid"]: event["args"]["name"] for event in events
           if event["ph"] == "M" and event["name"] == "process_name"}
  rows = {(event["pid"], event["tid"]) for event in events
          if event["ph"] == "M" and event["name"] == "thread_name"}
  by_name, by_row, arrows = collections.defaultdict(list), collections.defaultdict(list), {}
  for event in events:
    assert event["pid"] in names and event["ts"] >= 0, event
    if event["ph"] == "X":
      assert event["dur"] >= 0 and event["name"] and (event["pid"], event["tid"]) in rows, event
      by_name[names[event["pid"]]].append(event)
      by_row[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    elif event["ph"] in "sf":
      arrows.setdefault(event["id"], {})[event["ph"]] = event
  for spans in by_row.values():  # what overlaps has rows of its own
    spans.sort()
    assert all(before[1] <= after[0] for before, after in zip(spans, spans[1:])), spans
  assert all(sorted(pair) == ["f", "s"] for pair in arrows.values()), arrows
  for pair in arrows.values():
    assert pair["s"]["ts"] <= pair["f"]["ts"]
  sends = [event for slices in by_name.values() for event in slices
           if event["name"].startswith("send ")]
  receipts = [event for slices in by_name.values() for event in slices
              if event["name"].startswith("receive ")]
  assert len(sends) == len(receipts) == len(arrows)
  return dict(by_name)
