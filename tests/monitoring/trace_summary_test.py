from __future__ import annotations

from tests.monitoring import traced_runs
from tf1ps.monitoring import summarize_trace
from tf1ps.transfer import Ran

PAGE = """\
worker 0, steps 7 to 8: 2 traced runs of 0.10 ms (0.10 to 0.10)
of their time: 5 % pulling, 25 % computing, 35 % pushing, 35 % waiting

All figures are means per run, in milliseconds. A traced run takes longer than others.

waited for:
     0.025  the next batch: next on worker 0
     0.005  messages that end a run
     0.005  messages that begin a run

longest operations:
     0.025  MatMul: product on worker 0 CPU:0
     0.015  ResourceApplyAdam: update on ps 0 CPU:0
     0.005  MatMul: other on worker 0 CPU:0
     0.002  ReadVariableOp: read on ps 0 CPU:0

longest transfers:
     0.020  200 KB: gradient, worker 0 to ps 0
     0.003  400 bytes: read, ps 0 to worker 0
"""


def test_a_page():
  runs = [traced_runs.run(), traced_runs.run(8, at=2000.0)]
  assert summarize_trace(runs, traced_runs.WORKER) == PAGE


def test_ten_of_each_and_the_rest():
  run = traced_runs.run()
  ops = [Ran("op%02d" % number, "Add", [], traced_runs.WORKER, 1035.0, 1036.0 + number, "CPU:0")
         for number in range(12)]
  page = summarize_trace(
    [run._replace(trace=run.trace._replace(ops=ops))], traced_runs.WORKER).splitlines()
  begin = page.index("longest operations:") + 1
  assert page[begin] == "     0.012  Add: op11 on worker 0 CPU:0"
  assert page[begin + 9:begin + 12] == [
    "     0.003  Add: op02 on worker 0 CPU:0", "     0.003  2 more", ""]
