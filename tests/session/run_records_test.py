from __future__ import annotations

from tests.training import local_server
from tf1ps.session import run_records
from tf1ps.state import control, run

RUN = run.RunRecord(id="one", initialised=True, ended=False, failed=False, jobs={},
                    signature=[["w:0", "()", "float32", "", "ref"]], writes=1)


def test_a_run_is_read_as_it_was_written():
  records = run_records.RunRecords(local_server.record("run_records.a"))
  assert [task.name for task in records.holders] == ["/job:worker/task:0"]
  assert records.runs() == [None]
  records.write(RUN)
  assert records.runs() == [RUN]
  records.write_where_possible(RUN._replace(ended=True))
  assert records.runs() == [RUN._replace(ended=True)]
  assert run_records.RunRecords(local_server.record("run_records.b")).runs() == [None]
  records.close()


def test_what_a_holder_was_told_of_the_cluster():
  of = local_server.record("run_records.c")
  local_server.table(of).put({control.CLUSTER_RECORD: {"worker": {"0": "a:1"}}})
  assert run_records.RunRecords(of).clusters() == {of.cluster.task: {"worker": {"0": "a:1"}}}
  local_server.table(of).put({control.CLUSTER_RECORD: of.cluster.to_json()})
