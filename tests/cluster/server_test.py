from __future__ import annotations

import json
import pickle
import signal
import socket
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness, server_tasks, strangers
from tf1ps.cluster import server as server_lib
from tf1ps.cluster.description import ClusterError, Task
from tf1ps.cluster.probe import probe_task
from tf1ps.state import control, run

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


# What is refused.


@pytest.mark.parametrize("cluster, job, index, said", [
    ({"ps": ["127.0.0.1:99999"], "worker": ["a:1"]}, "ps", 0, "above 65535 .*listen on 34463"),
    ({"ps": ["a:1"], "worker": ["a:1"]}, "ps", 0, "a:1 of /job:worker/task:0 is already the address"
                                                  " of /job:ps/task:0"),
    ({"ps": ["127.0.0.1:1"], "worker": ["a:1"]}, "worke", 0, 'did you mean "worker"'),
    ({"ps": ["127.0.0.1:1"], "worker": ["a:1"]}, "ps", 1, "1 is out of range: the only ps is 0"),
    ({"ps": ["127.0.0.1:1"], "worker": ["a:1"]}, None, None, "job_name is missing"),
    ({"ps": ["127.0.0.1"], "worker": ["a:1"]}, "ps", 0, "has no port"),
    ({"ps": ["127.0.0.1:0"], "worker": ["a:1"]}, "ps", 0, "is 0, so that the system would choose"),
    ({"ps": ["http://127.0.0.1:1"]}, "ps", 0, "is a URL"),
    ({"ps": "127.0.0.1:1"}, "ps", 0, "is not a list of addresses"),
    ({"ps": []}, "ps", 0, "has no tasks"),
    ("127.0.0.1:1", "ps", 0, "does not describe a cluster"),
])
def test_a_bad_cluster_is_refused_before_anything_starts(monkeypatch, cluster, job, index, said):
  monkeypatch.setattr(tf.train.Server, "__init__", None)  # not to be called
  with pytest.raises(ClusterError, match=said) as caught:
    tf1ps.Server(cluster, job, index)
  assert isinstance(caught.value, tf.errors.InvalidArgumentError)  # for programs that catch it


def test_its_errors_are_those_of_tensorflow_too():
  for kind, stock in ((server_lib.PortTakenError, tf.errors.UnknownError),
                      (server_lib.ServerClusterError, tf.errors.InvalidArgumentError)):
    error = pickle.loads(pickle.dumps(kind("the text")))
    assert isinstance(error, stock) and type(error) is kind
    assert (str(error), error.message, error.node_def) == ("the text", "the text", None)
    with pytest.raises(stock, match="^the text$"):
      raise error


@pytest.mark.parametrize("options, error, said", [
    ({"job_workers": [3]}, ClusterError, "3"),
    ({"job_workers": []}, ClusterError, "names no worker"),
    ({"heartbeat_timeout": 0}, ValueError, "heartbeat_timeout must be"),
    ({"start_timeout": 0}, ValueError, "start_timeout must be a positive number of seconds, got 0"),
])
def test_bad_options_are_refused_before_anything_starts(monkeypatch, options, error, said):
  monkeypatch.setattr(tf.train.Server, "__init__", None)
  with pytest.raises(error, match=said):
    tf1ps.Server({"ps": ["a:1"], "worker": ["a:2"]}, "ps", 0, **options)


@pytest.mark.parametrize("start_at_once", [True, False])
def test_a_port_that_a_socket_has(start, start_at_once):
  with socket.socket() as taken:
    taken.bind(("", 0))
    taken.listen(1)
    address = "127.0.0.1:%d" % taken.getsockname()[1]
    task = start("ps", server_tasks.try_port, address, start_at_once)
    assert task.wait() == 0
    assert ("Could not start gRPC server: /job:ps/task:0 cannot listen at %s: another process has "
            "that port" % address in task.lines)


def test_a_port_that_another_server_has(start):
  address, = harness.addresses(1)
  start("other", server_tasks.hold_port, address).wait_for("up")
  task = start("ps", server_tasks.try_port, address, True)
  task.wait_for("/job:ps/task:0 cannot listen at %s: another process has that port" % address)


# What is known of a server.


@pytest.mark.parametrize("how", ["dict", "spec", "cluster_def", "server_def"])
def test_a_server_is_known_by_its_target(start, how):
  ps, worker_0, worker_2 = harness.addresses(3)
  jobs = {"ps": {"0": ps}, "worker": {"0": worker_0, "2": worker_2}}
  options = dict(container="jobs/a", job_workers=[2], persistent=True, start_timeout=7.5,
                 heartbeat_timeout=3.0, grace=9.0, recovery_timeout=40.0,
                 config=tf.ConfigProto(inter_op_parallelism_threads=3))
  task = start("ps", server_tasks.describe, how, jobs, "ps", 0, options)
  assert task.wait() == 0, task.output
  assert json.loads(task.last_line) == [
      jobs, "/job:ps/task:0", [2], "jobs/a", 3, True, 7.5, 3.0, True, 9.0, 40.0]


def test_the_defaults(start):
  address, = harness.addresses(1)
  task = start("ps", server_tasks.describe, "dict", {"ps": {"0": address}}, None, None, {})
  assert task.wait() == 0, task.output
  assert json.loads(task.last_line) == [
      {"ps": {"0": address}}, "/job:ps/task:0", None, "", None, False, None, 30.0, True, 25.0, None]


def test_a_local_server_knows_the_port_that_the_system_chose(start):
  task = start("local", server_tasks.describe, "local", {}, None, None, {})
  assert task.wait() == 0, task.output
  jobs, name = json.loads(task.last_line)[:2]
  assert name == "/job:localhost/task:0"
  host, port = jobs["localhost"]["0"].split(":")
  assert host == "localhost" and int(port) > 0


def test_a_server_that_is_started_later(start):
  start("local", server_tasks.start_later, harness.addresses(1)[0]).wait_for("answers 7")


def test_strangers_do_not_take_all_files_of_its_process(start):
  address, = harness.addresses(1)
  start("ps", server_tasks.serve_with_few_files, {"ps": [address]}, 256).wait_for("up")
  with strangers.half_open(address, 400):
    assert probe_task(Task("ps", 0, address), harness.LIMIT).is_up


# How join ends.


def joined(start, jobs, job="ps", index=0, **options):
  task = start("%s %d" % (job, index), server_tasks.join, jobs, job, index, options)
  task.wait_for("joins ''")
  return task


def two_jobs():
  return {job: harness.addresses(1) for job in ("ps", "worker")}


def mark_run(jobs, container="", **fields):
  """Does on ps 0 what a chief does with its run."""
  task = Task("ps", 0, jobs["ps"][0])
  table = control.ControlTable("grpc://" + task.address, task, task)
  run.write_run(table, container, run.RunRecord(
      id="r", initialised=True, ended=False, failed=False, jobs={}, signature=[],
      writes=1)._replace(**fields))
  table.close()


@BOTH
@pytest.mark.parametrize("persistent", [False, True])
def test_join_ends_by_a_signal(start, number, persistent):
  task = joined(start, two_jobs(), persistent=persistent)
  task.signal(number)
  if persistent:
    assert task.wait() == 0
    assert task.last_line == "ended: ended by signal %d" % number
  else:
    assert task.wait() == 128 + number


@pytest.mark.slow
def test_a_worker_that_serves_ends_by_a_signal_too(start):
  jobs = two_jobs()
  joined(start, jobs)
  task = joined(start, jobs, "worker")
  task.signal(signal.SIGINT)
  assert task.wait() == 130


def test_join_returns_when_the_job_has_ended(start):
  jobs = two_jobs()
  task = joined(start, jobs, heartbeat_timeout=1.5)
  mark_run(jobs)
  mark_run(jobs, ended=True)
  assert task.wait() == 0
  assert task.last_line == "ended: the chief released this task: the job has ended"


def test_join_of_a_ps_exits_when_the_job_has_ended(start):
  jobs = two_jobs()
  ps = start("ps", server_tasks.fall_through, jobs)
  ps.wait_for("up")
  mark_run(jobs, ended=True)
  assert ps.wait() == 0
  # Stock's join never returns, and many programs have the workers' code behind it.
  assert "fell through" not in ps.output


def test_join_raises_when_the_job_has_failed(start):
  jobs = two_jobs()
  task = joined(start, jobs)
  mark_run(jobs, ended=True, failed=True)
  assert task.wait() == 1
  assert task.last_line == "lost: the chief released this task: the job has failed"


def test_join_raises_when_nobody_comes(start):
  task = start("ps 0", server_tasks.join, two_jobs(), "ps", 0, {"start_timeout": 0.5})
  assert task.wait() == 1
  assert task.last_line == "lost: no worker came within 0.5 s (--start_timeout)"


def test_in_another_thread_signals_are_the_main_threads_affair(start):
  task = start("ps", server_tasks.join_in_a_thread, two_jobs())
  task.wait_for("up")
  task.signal(signal.SIGINT)
  assert task.wait_for("main interrupted") == "main interrupted, joined: True"


@pytest.mark.parametrize("function", [server_tasks.join_stock, server_tasks.join_without_waiter])
def test_stocks_join_hears_no_interrupt(start, function):
  task = start("ps", function, two_jobs())
  task.wait_for("up")
  for _ in range(2):
    task.signal(signal.SIGINT)
  with pytest.raises(AssertionError, match="has not ended"):
    task.wait(0.7)
  task.signal(signal.SIGTERM)
  assert task.wait() == -signal.SIGTERM


@pytest.mark.slow
def test_a_program_that_joins_leaves_the_interpreter():
  program = ("import json, sys; from tests import server_tasks; "
             "server_tasks.join(json.loads(sys.argv[1]), 'ps', 0, {})")
  with subprocess.Popen([sys.executable, "-c", program, json.dumps(two_jobs())],
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
    try:
      assert process.stdout.readline() == b"joins ''\n"
      process.send_signal(signal.SIGTERM)
      assert process.wait(60) == 143
    finally:
      process.kill()


def test_only_targets_of_this_process_are_known():
  assert server_lib.record_of("grpc://127.0.0.1:2222") is None and server_lib.record_of("") is None


def test_a_server_is_known_by_the_address_that_the_cluster_gives_it():
  """Estimators make the target of it; that of TensorFlow 1.15's server says localhost."""
  address, = harness.addresses(1)
  server = server_lib.Server({"worker": [address]}, "worker", 0)
  assert server_lib.record_of("grpc://" + address) is server.record


def test_the_end_of_data_comes_as_such_behind_a_record_that_is_no_text(start):
  task = start("reader", server_tasks.read_a_record_that_is_no_text, harness.addresses(1))
  task.wait()
  assert [line for line in task.lines if line in ("True", "False", "the end")] == [
    "True", "the end"], task.output
