from __future__ import annotations

import json
import re

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, server_tasks
from tests.cli import app_test, commands
from tests.state import reset_tasks
from tf1ps.cluster import session as session_lib

files = app_test.files  # the programs as a shell would run them


@pytest.fixture(scope="module")
def jobs(forks):
  """The addresses of a ps and a worker, both stock servers."""
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  servers = [forks.start(job, cluster_tasks.serve, jobs, job, 0) for job in jobs]
  for server in servers:
    server.wait_for("up")
  yield jobs
  for server in servers:
    server.kill()


def hosts(jobs):
  return ["--%s_hosts=%s" % (job, ",".join(there)) for job, there in jobs.items()]


class State:
  """A variable in each of two containers of the ps."""

  def __init__(self, jobs):
    with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
      for container in ("jobs/a", "jobs/b"):
        with graph.container(container):
          tf.get_variable(container, initializer=1.0)
      self._there = [tf.is_variable_initialized(v) for v in tf.global_variables()]
      fill = tf.global_variables_initializer()
    self._session = session_lib.BoundedSession("grpc://" + jobs["ps"][0], graph)
    self._session.run(fill)

  def is_there(self):
    return [bool(there) for there in self._session.run(self._there)]


@pytest.fixture
def state(jobs):
  made = State(jobs)
  yield made
  made._session.close()


def is_last(line, cleared, of, code):
  return re.match(r"reset: %d of %d tasks cleared, \d+\.\d s, exit code %d$" % (
    cleared, of, code), line)


@pytest.mark.slow
def test_it_says_for_each_task_what_it_did(start, jobs, state):
  with tf.Graph().as_default() as graph:
    queue = reset_tasks.make_queue("jobs/a")
    with tf.device("/job:ps/task:0"), graph.container("jobs/a"):
      foreign = tf.queue.FIFOQueue(5, tf.int32, [], shared_name="theirs").enqueue(1)
  with tf.Session("grpc://" + jobs["ps"][0], graph) as session:
    queue.put(session, 1)
    session.run(foreign)
  code, lines = commands.run(
    start, "tf1ps-reset", "jobs/a", *hosts(jobs), "default", "queue:theirs", "queue:none")
  assert code == 0 and len(lines) == 3, lines
  assert lines[:2] == [
    "/job:ps/task:0 at %s: cleared jobs/a, ps, queues closed first: jobs/a/q, jobs/a/theirs"
    % jobs["ps"][0],
    "/job:worker/task:0 at %s: cleared jobs/a, worker" % jobs["worker"][0]]
  assert is_last(lines[2], 2, 2, 0)
  assert state.is_there() == [False, True]


def test_the_cluster_from_tf_config(start, jobs, state):
  tf_config = json.dumps({"cluster": jobs, "task": {"type": "worker", "index": 0}})
  code, lines = commands.run(start, "tf1ps-reset", "jobs/b", TF_CONFIG=tf_config)
  assert code == 0 and is_last(lines[-1], 2, 2, 0)
  assert state.is_there() == [True, False]
  code, lines = commands.run(start, "tf1ps-reset", "jobs/b", "--ps_hosts=a:1", TF_CONFIG=tf_config)
  assert (code, len(lines)) == (1, 1)
  assert lines[0].startswith('tf1ps-reset: --ps_hosts is "a:1", but TF_CONFIG cluster.ps is ')


def test_only_the_ps(start, jobs, state):
  code, lines = commands.run(
    start, "tf1ps-reset", "--ps_hosts=" + jobs["ps"][0], "jobs/a", "jobs/b")
  assert code == 0 and is_last(lines[-1], 1, 1, 0)
  assert state.is_there() == [False, False]


def test_a_ps_that_tells_its_cluster_and_a_task_that_is_not_there(start):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  ps = start("ps", server_tasks.join, jobs, "ps", 0, {"persistent": True})
  ps.wait_for("joins")
  target = "grpc://" + jobs["ps"][0]

  def try_it():
    result = commands.run(start, "tf1ps-reset", target, "jobs/a")
    return None if "is not known" in result[1][0] else result

  code, lines = harness.wait_until(try_it)
  assert code == 1
  assert lines[:2] == [
    "/job:ps/task:0 at %s: cleared jobs/a" % jobs["ps"][0],
    "/job:worker/task:0 at %s: not cleared: refused (nothing listens on that port)"
    % jobs["worker"][0]]
  assert is_last(lines[2], 1, 2, 1)
  assert commands.run(start, "tf1ps-reset", target, "jobs/a", *hosts(jobs)) == (
    1, ["tf1ps-reset: %s and --ps_hosts both name a cluster: leave one out" % target])


@pytest.mark.parametrize("argv, text", [
  ([], 'the names of the containers are missing: give them, or "default"'),
  ([""], 'TensorFlow clears nothing for the container "": '),
  (["jobs/a", "localhost"], 'TensorFlow clears nothing for the container "localhost": '),
  (["jobs/a", "my_problem_1"], "container 'my_problem_1' has '_' at position 2: "),
  (["tf1ps.control"], "container 'tf1ps.control' is where the run and the heartbeats live")])
def test_names_that_cannot_be_meant_are_refused(start, jobs, state, argv, text):
  code, lines = commands.run(start, "tf1ps-reset", *hosts(jobs), *argv)
  assert (code, len(lines)) == (1, 1) and lines[0].startswith("tf1ps-reset: " + text), lines
  assert state.is_there() == [True, True]


@pytest.mark.parametrize("argv, text", [
  ([], "no cluster is described: give --ps_hosts and --worker_hosts, set TF_CONFIG in the "
   "environment, or give grpc://HOST:PORT of a ps of tf1ps"),
  (["http://a:1"], "target must be a cluster or begin with grpc://, got 'http://a:1'"),
  (["--target=grpc://a:1"], "--target is not a flag any more: give grpc://HOST:PORT"),
  (["grpc://a:1", "grpc://b:1"], "grpc://a:1 and grpc://b:1 both name a cluster"),
  (["--ps_hosts=a:1", "--worker_hosts=a:1"], "--worker_hosts: a:1 of /job:worker/task:0 is already "
   "the address of /job:ps/task:0")])
def test_a_cluster_is_needed(start, argv, text):
  code, lines = commands.run(start, "tf1ps-reset", "jobs/a", *argv, TF_CONFIG=None)
  assert (code, len(lines)) == (1, 1) and lines[0].startswith("tf1ps-reset: " + text), lines


@pytest.mark.slow
def test_it_is_quiet(files, jobs):
  process = files.start("tf1ps-reset", "jobs/a", *hosts(jobs))
  output, errors = process.communicate(timeout=harness.LIMIT)
  assert (process.returncode, errors) == (0, "")
  assert output.count("\n") == 3 and not app_test.NOISE.search(output), output
