from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tests import cluster_tasks, harness, state_tasks, strangers
from tf1ps.cluster.description import Task
from tf1ps.compat import worker_service
from tf1ps.state import containers, control


@pytest.fixture(scope="module")
def ps(forks):
  """Two ps that know each other and two workers."""
  jobs = {"ps": harness.addresses(2), "worker": harness.addresses(2)}
  servers = [forks.start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for server in servers:
    server.wait_for("up")
  tasks = [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  yield jobs, tasks
  for server in servers:
    server.kill()


@pytest.fixture
def tables(ps, set_timing):
  """Two accesses to the records of ps 0, which are none: through its own master, and ps 1's."""
  _, tasks = ps
  set_timing(control, probe_limit=harness.LIMIT)
  worker_service.cleanup_all(tasks[0].address, [containers.CONTROL], harness.LIMIT)
  made = [control.ControlTable("grpc://" + task.address, task, tasks[0], harness.LIMIT)
          for task in tasks]
  yield made
  for table in made:
    table.close()


def values(records):
  return {name: record.value for name, record in records.items()}


def test_each_sees_what_the_other_wrote(tables):
  one, other = tables
  assert one.read() == other.read() == {}
  one.put({"a": {"n": 1}, "b": {}})
  assert values(other.read()) == {"a": {"n": 1}, "b": {}}
  assert values(other.exchange({"b": {"n": [2, None, "x"]}, "c": {"d": {"e": 0.5}}})) == {
      "a": {"n": 1}, "b": {"n": [2, None, "x"]}, "c": {"d": {"e": 0.5}}}
  assert values(one.read()) == values(other.read())
  other.put({"a": {"n": 3}})  # replaces the whole record
  assert values(one.read())["a"] == {"n": 3}
  assert one.control_task.name == other.control_task.name == "/job:ps/task:0"


def test_the_records_of_another_control_task_are_others(ps, tables):
  _, tasks = ps
  tables[0].put({"a": {}})
  elsewhere = control.ControlTable("grpc://" + tasks[0].address, *tasks)
  assert elsewhere.read() == {}
  elsewhere.close()


def test_records_outlive_sessions_and_a_closed_table_opens_again(tables):
  one, other = tables
  one.put({"a": {"n": 1}})
  one.close()
  assert values(other.read()) == {"a": {"n": 1}}
  assert values(one.read()) == {"a": {"n": 1}}


def test_names_and_values_of_every_kind(tables):
  names = ["", " ", "a b", "a\nb", "é", "名前", "\U0001f600", '"]', "member:a/b:worker:0",
           "x" * 999]
  written = {name: {"of": name, "größe": 1e300, "t": True} for name in names}
  tables[0].put(written)
  assert values(tables[1].read()) == written


def test_nothing_to_write(tables):
  tables[0].put({})
  assert tables[0].exchange({}) == {}
  tables[0].put({"a": {}})
  assert values(tables[0].exchange({})) == {"a": {}}


def test_two_hundred_records(tables):
  written = {"record %d" % i: {"i": i} for i in range(200)}
  tables[0].put(written)
  assert values(tables[1].read()) == written
  for _ in range(10):
    tables[1].exchange({"record 7": {"i": 7}})
  assert values(tables[0].read()) == written


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_step_of_the_control_task_makes_nobody_older_or_younger(tables, monkeypatch, step):
  """A step of the server's clock reaches a client as texts and numbers alone."""
  table, others = tables
  others.put({"silent": {}, "before": {}, "alive": {}})
  began = time.monotonic()
  table.read()
  looked = time.monotonic()
  run = table._run

  def stepped(fetches, *args):
    values, now = run(fetches, *args)
    moved = [b"%.3f %s" % (float(v.split(b" ", 1)[0]) + step, v.split(b" ", 1)[1])
             if b"alive" in v else v for v in values]
    return np.array(moved, object), now + step

  monkeypatch.setattr(table, "_run", stepped)
  harness.wait_until(lambda: time.monotonic() - looked > 0.1)
  others.put({"before": {}, "alive": {}})  # the clock steps between the two
  found = table.read()
  for name in ("before", "alive"):
    assert 0.0 <= found[name].age <= time.monotonic() - began  # at most since it was written
  assert 0.1 <= found["silent"].age < abs(step) / 2  # no test lasts so long


def test_ages_are_by_the_control_tasks_clock(tables, monkeypatch):
  for table in tables:
    table.read()  # connects, which takes the time
  monkeypatch.setattr(time, "time", lambda: 0.0)  # this process's clock is wrong
  began = time.monotonic()
  first = tables[0].exchange({"a": {}})["a"].age
  tables[1].put({"b": {}})
  harness.wait_until(lambda: tables[1].read()["b"].age > 0.3)
  ages = {name: record.age for name, record in tables[1].read().items()}
  # Nothing is older than the time since before it was written, but that its stamp is rounded.
  assert 0.0 <= first < time.monotonic() - began + 0.01
  assert 0.3 < ages["b"] <= ages["a"] < time.monotonic() - began + 0.01
  written = time.monotonic()
  again = tables[0].exchange({"a": {}})
  assert 0.0 <= again["a"].age < time.monotonic() - written + 0.01
  assert 0.3 < again["b"].age


def test_what_it_writes_itself_is_not_older_than_the_run(tables):
  for _ in range(20):
    began = time.monotonic()
    age = tables[0].exchange({"a": {}})["a"].age
    assert age < time.monotonic() - began + 0.01  # its stamp is rounded


def test_the_records_stay_when_the_containers_of_jobs_are_cleared(ps, tables):
  _, tasks = ps
  tables[0].put({"a": {}})
  containers.clear_container("", tasks)
  containers.clear_container("jobs/a", tasks)
  assert list(tables[0].read()) == ["a"]


@pytest.mark.slow
def test_twenty_writers_in_two_processes_lose_nothing(ps, tables, start):
  jobs, _ = ps
  writers = [start("worker %d" % i, state_tasks.write, jobs, i, 10, 10) for i in range(2)]
  for writer in writers:
    writer.wait_for("written")
    assert writer.wait() == 0, writer.output
  assert values(tables[0].read()) == {
      "%d/%d/%d" % (w, t, i): {"i": i} for w in range(2) for t in range(10) for i in range(10)}


def test_one_table_serves_many_threads(tables):
  threads = [threading.Thread(target=tables[0].put, args=({"%d" % i: {}},)) for i in range(10)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert sorted(tables[0].read()) == ["%d" % i for i in range(10)]


def test_a_control_task_that_is_not_there_is_named(ps, set_timing):
  _, tasks = ps
  set_timing(control, probe_limit=1000.0)  # it is said at once: no test lasts for a limit
  control_task = Task("ps", 0, harness.addresses(1)[0])
  table = control.ControlTable("grpc://" + tasks[1].address, tasks[1], control_task, limit=1000.0)
  for call in (table.read, lambda: table.put({"a": {}}), lambda: table.exchange({"a": {}})):
    with pytest.raises(control.ControlError) as raised:
      call()
    assert str(raised.value) == (
        "/job:ps/task:0 at %s, which keeps the control records, is not there: refused (nothing "
        "listens on that port)" % control_task.address)
  table.close()


def test_a_silent_control_task_costs_the_limit(ps, set_timing):
  _, tasks = ps
  set_timing(control, probe_limit=1000.0)  # the shorter limit counts
  with strangers.silent() as address:
    silent = Task("ps", 0, address)
    table = control.ControlTable("grpc://" + tasks[1].address, tasks[1], silent, limit=0.4)
    began = time.monotonic()
    with pytest.raises(control.ControlError, match="is not there: silent"):
      table.read()
    assert time.monotonic() - began >= 0.4


def test_a_control_task_that_stands_still_or_dies_and_comes_back(start):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  control_task = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  control_task.wait_for("up")
  worker = start("worker", state_tasks.lose_control_task, jobs, control_task.pid)
  worker.wait_for("killed again")
  start("ps", cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  assert worker.wait() == 0, worker.output
  said = [line.split(": ", 3)[1:] for line in worker.lines if line.startswith("call: ")]
  calls = {what: (float(seconds), result) for what, seconds, result in said}
  prefix = "ControlError: /job:ps/task:0 at %s, which keeps " % jobs["ps"][0]
  assert calls["first"][1] == "ok"
  for what in ("stopped", "stopped again", "killed", "killed again"):
    assert calls[what][1].startswith(prefix), calls[what]
  assert calls["stopped"][0] >= 0.8
  assert calls["goes on"][1] == "ok"
  # What was asked for while it stood still may be done later.
  assert calls["records"][1] in ("['a', 'b', 'c']", "['a', 'c']")
  assert calls["later"][1] == "ok"
  assert calls["records of the next"][1] == "['e']"  # a new process begins with none


def test_the_first_call_after_a_restart_of_the_control_task(start):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  worker = start("worker", cluster_tasks.serve, jobs, "worker", 0)
  tasks = [Task(job, 0, jobs[job][0]) for job in ("worker", "ps")]
  table = control.ControlTable("grpc://" + tasks[0].address, *tasks)
  for call in (table.read, lambda: table.exchange({"a": {}}), lambda: table.put({"b": {}})):
    ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    for each in (worker, ps):
      each.wait_for("up")
    call()
    assert "old" not in table.read()
    table.put({"old": {}})
    ps.kill()
  table.close()


def test_a_name_is_known_by_eight_bytes_of_its_hash():
  graph_ops = control._build("/job:ps/task:0")
  feed = control._encode(graph_ops, {"b": {"x": 1}, "a": {}})
  # The first sixteen digits of `printf a | sha256sum`, and of b.
  assert feed[graph_ops.keys].tolist() == [
      int(np.uint64(0xca978112ca1bbdca).astype(np.int64)), 0x3e23e8160039594a]
  assert feed[graph_ops.values] == ['["a", {}]', '["b", {"x": 1}]']


@pytest.mark.slow
def test_changes_of_one_record_come_one_after_the_other(tables):
  rounds = 40

  def count(table):
    for _ in range(rounds):
      table.change("count", lambda value: {"n": (value or {"n": 0})["n"] + 1})

  threads = [threading.Thread(target=count, args=(table,)) for table in tables]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
  assert values(tables[0].read()) == {"count": {"n": 2 * rounds}}


def test_a_change_may_leave_the_record_as_it_is(tables):
  table = tables[0]
  assert table.change("a", lambda value: None) == {}
  assert values(table.read()) == {}
  assert table.change("a", lambda value: {"n": 1}) == {"n": 1}
  assert table.change("a", lambda value: value.clear()) == {"n": 1}
  assert values(table.read()) == {"a": {"n": 1}}
