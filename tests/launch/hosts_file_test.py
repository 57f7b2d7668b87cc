from __future__ import annotations

import json

import pytest

from tf1ps.launch import hosts_file, job

pytestmark = pytest.mark.any_tensorflow


def read(tmp_path, text, port=2222):
  path = tmp_path / "hosts.txt"
  path.write_text(text)
  return hosts_file.read_hosts(str(path), port)


def test_tasks_in_the_order_of_the_file(tmp_path):
  tasks = read(tmp_path, """
    # a job
    node2 worker ps   # two tasks
    me@node3
    node4 worker*2 evaluator
    gateway slots=1 address=10.0.0.5
    node2 ps
  """)
  assert [tuple(task) for task in tasks] == [
    ("ps", 0, "node2:2223", "node2"), ("ps", 1, "node2:2224", "node2"),
    ("worker", 0, "node2:2222", "node2"), ("worker", 1, "node3:2222", "me@node3"),
    ("worker", 2, "node4:2222", "node4"), ("worker", 3, "node4:2223", "node4"),
    ("worker", 4, "10.0.0.5:2222", "gateway"), ("evaluator", 0, "node4:2224", "node4")]
  assert tasks[-1].name == "evaluator 0"
  config = json.loads(job.tf_config_of(tasks, tasks[3]))
  assert config["task"] == {"type": "worker", "index": 1}
  assert config["cluster"]["ps"] == ["node2:2223", "node2:2224"]
  assert "evaluator" not in config["cluster"] and len(config["cluster"]["worker"]) == 5
  assert hosts_file.command_of(["{job}-{index}", "{ps_hosts}", "{}{a}"], tasks, tasks[3]) == [
    "worker-1", "node2:2223,node2:2224", "{}{a}"]


def test_a_job_without_ps(tmp_path):
  tasks = read(tmp_path, "a\nb address=10.0.0.2\n", 9000)
  assert json.loads(job.tf_config_of(tasks, tasks[0])) == {
    "cluster": {"worker": ["a:9000", "10.0.0.2:9000"]}, "task": {"type": "worker", "index": 0}}


@pytest.mark.parametrize("text, said", [
  ("", "has no worker: add a line such as `node2 worker`"), ("a ps", "has no worker"),
  ("a worker\nb chef", "hosts.txt:2: 'chef' is not known: give ps, worker, evaluator, "),
  ("a worker\nb slots=0", "hosts.txt:2: 'slots=0' is not known: give ps, worker, evaluator, "),
  ("a ps*0 worker", "hosts.txt:1: 'ps.0' is not known: give ps, worker, evaluator, "),
  ("a worker evaluator\nb evaluator", "has 2 evaluators: give one line with `evaluator`"),
  ("-oProxyCommand=x worker", "hosts.txt:1: '-oProxyCommand=x' is not a host"),
  ("a worker*100", "--port=65500 leaves too few ports for a"),
  ("a worker*99999999", "hosts.txt:1: a job has at most 4096 tasks, and with this line there are "),
  ("a ps\nb slots=" + 5000 * "9", "hosts.txt:2: a job has at most 4096 tasks, and with this line "),
  ("a worker*4000\nb worker*97", "hosts.txt:2: a job has at most 4096 tasks, and with this line ")])
def test_files_that_are_refused(tmp_path, text, said):
  with pytest.raises(hosts_file.HostsError, match=said):
    read(tmp_path, text, 65500 if "--port" in said else 2222)


def test_the_largest_job_fits_the_longest_argument_of_linux(tmp_path):
  tasks = read(tmp_path, "node-100 ps*96 worker*1904\nnode-200 worker*2096")
  assert len(tasks) == 4096 and len(job.tf_config_of(tasks, tasks[-1])) < 2 ** 17


def test_a_file_that_is_not_there(tmp_path):
  with pytest.raises(hosts_file.HostsError, match="the file of hosts .*/gone cannot be read: "):
    hosts_file.read_hosts(str(tmp_path / "gone"), 2222)
