from __future__ import annotations

import glob
import re

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tests.training.job import Job, codes
from tf1ps.checkpoint import global_step
from tf1ps.training import traffic_report
from tf1ps.transfer import step_time, traffic

LINE = (r"sent per step: ([\d.]+ K?B|[\d.]+ bytes) and (\d+) messages? down, (.*) and (\d+) up"
        r"(?: \(\d+ % pulling, \d+ % computing, \d+ % pushing, \d+ % waiting\))?")


@pytest.fixture
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


class Clock(object):
  """A clock that tests set forward; a look at it takes no time."""

  def __init__(self, monkeypatch):
    self.now = 1000.0
    monkeypatch.setattr(traffic_report.time, "perf_counter", lambda: self.now)


class Takes(tf.train.SessionRunHook):
  """Lets time pass in each run: a traced one takes longer."""

  def __init__(self, clock, seconds, traced_seconds):
    self._clock, self._seconds, self._traced = clock, seconds, traced_seconds
    self.traced = []  # numbers of the runs that were

  def begin(self):
    self._run = 0

  def after_run(self, run_context, run_values):
    self._run += 1
    has_trace = bool(run_values.run_metadata.step_stats.dev_stats)
    self._clock.now += self._traced if has_trace else self._seconds
    if has_trace:
      self.traced.append(self._run)


def run(clock, steps, seconds=0.125, traced_seconds=0.375, **kwargs):
  """Runs local steps; returns the hook and the numbers of the traced runs."""
  model = local_loop.Model()
  tracker = global_step.GlobalStepTracker()
  takes = Takes(clock, seconds, traced_seconds)
  hook = traffic_report.TrafficReport(tracker, model.train_op, **kwargs)
  local_loop.run([tracker, takes, hook], steps)
  return hook, takes.traced


def test_traces_take_one_part_in_a_hundred(graph, monkeypatch):
  hook, traced = run(Clock(monkeypatch), 1500, every_secs=0)
  # The first is taken to cost 20 ms and ten runs: after 127 s. It costs 0.25 s: 25 s to the next.
  assert traced == [1017, 1218, 1419]
  assert hook.cost == 3 * 0.25 < 0.01 * 1500 * 0.125
  assert len(hook.shares) == 3


def test_not_before_so_many_runs_and_seconds(graph, monkeypatch):
  assert run(Clock(monkeypatch), 100, first_run=20, every_secs=5.0, max_cost=1.0)[1] == [
    20, 61]


def test_a_short_job_has_none(graph, monkeypatch):
  hook, traced = run(Clock(monkeypatch), 200)
  assert (traced, hook.shares, hook.cost) == ([], [], 0.0)


def test_without_ps_there_is_nothing_to_say(graph, monkeypatch):
  hook, _ = run(Clock(monkeypatch), 30, max_cost=1.0)
  assert str(hook) == "" and str(traffic_report.TrafficReport(None, [])) == ""


@pytest.mark.parametrize("kwargs", [
  {"first_run": 0}, {"every_secs": -1.0}, {"max_cost": 0.0}, {"max_cost": 1.5}])
def test_arguments(kwargs):
  with pytest.raises(ValueError, match="first_run must be 1 or more, every_secs not negative"):
    traffic_report.TrafficReport(None, [], **kwargs)


def test_what_the_line_says():
  hook = traffic_report.TrafficReport(None, [])
  ps, worker = "/job:ps/task:0", "/job:worker/task:0"
  hook.report = traffic.StepTraffic([traffic.Message("w:0", ps, worker, 3400000, "shape"),
                                traffic.Message("g:0", worker, ps, 1700000, "shape")], 2)
  assert str(hook) == "sent per step: 1.7 MB and 0.5 messages down, 850 KB and 0.5 up"
  hook.shares = [step_time.TimeShares(0.4, 0.3, 0.2, 0.1, 1.0),
                 step_time.TimeShares(0.6, 0.1, 0.2, 0.1, 1.0)]
  assert str(hook) == ("sent per step: 1.7 MB and 0.5 messages down, 850 KB and 0.5 up "
                       "(50 % pulling, 20 % computing, 20 % pushing, 10 % waiting)")


def test_a_trace_tells_what_the_graph_does_not_know():
  ps, worker = ("/job:%s/replica:0/task:0/device:CPU:0" % job for job in ("ps", "worker"))
  hook = traffic_report.TrafficReport(None, [])
  hook.begin()
  metadata = tf.RunMetadata()
  stats = metadata.step_stats.dev_stats.add(device=worker)
  stats.node_stats.add(node_name="mul", timeline_label="mul = Mul(w_S1)", op_end_rel_micros=5)
  stats.node_stats.add(
    node_name="RecvTensor", timeline_label="[0.3MB] edge_1_w from %s to %s" % (ps, worker)
  ).output.add().tensor_description.allocation_description.requested_bytes = 300000
  hook._read(metadata, 10e-6)
  assert hook.report.messages == [
    traffic.Message("w", "/job:ps/task:0", "/job:worker/task:0", 300000, "run")]
  assert str(hook).endswith("(0 % pulling, 50 % computing, 0 % pushing, 50 % waiting)")


def test_a_traced_run_of_more_steps_counts_by_the_step():
  """The graph was read for runs of one step, and the job has taken to longer ones since."""
  ps, worker = ("/job:%s/replica:0/task:0/device:CPU:0" % job for job in ("ps", "worker"))
  steps = [1]
  hook = traffic_report.TrafficReport(None, [], count_steps=lambda: steps[0])
  hook.begin()
  hook._graph = traffic.StepTraffic([
    traffic.Message("w", "/job:ps/task:0", "/job:worker/task:0", 300000, "shape"),
    traffic.Message("g", "/job:worker/task:0", "/job:ps/task:0", 200000, "shape")], 1)
  steps[0] = 2
  hook.before_run(None)
  metadata = tf.RunMetadata()
  stats = metadata.step_stats.dev_stats.add(device=worker)
  stats.node_stats.add(node_name="mul", timeline_label="mul = Mul(w_S1)", op_end_rel_micros=5)
  for _ in range(2):  # the trace lacks what arrives on the ps
    stats.node_stats.add(
      node_name="RecvTensor", timeline_label="[0.3MB] edge_1_w from %s to %s" % (ps, worker)
    ).output.add().tensor_description.allocation_description.requested_bytes = 300000
  hook._read(metadata, 10e-6)
  assert str(hook.report) == "sent per step: 300 KB and 1 message down, 200 KB and 1 up"
  steps[0] = 1
  hook.before_run(None)
  assert str(hook._graph) == str(hook.report)


def test_summaries_of_each_ps():
  ps, worker = "/job:ps/task:1", "/job:worker/task:0"
  report = traffic.StepTraffic([traffic.Message("w:0", ps, worker, 8, "shape"),
                           traffic.Message("^a", worker, ps, 0, "shape")], 2)
  summary = traffic_report._summary(report, step_time.TimeShares(0.5, 0.25, 0.125, 0.125, 1.0))
  totals = {"bytes_down": 4, "bytes_up": 0, "messages_down": 0.5, "messages_up": 0.5}
  expected = {"traffic/job_ps_task_1/" + name: value for name, value in totals.items()}
  expected.update({"traffic/" + name: value for name, value in totals.items()})
  expected.update({"traffic/pulling": 0.5, "traffic/computing": 0.25, "traffic/pushing": 0.125,
                   "traffic/waiting": 0.125})
  assert {value.tag: value.simple_value for value in summary.value} == expected


def test_summaries_of_steps_on_a_ps(graph, ps, tmp_path):
  """The session's task is the ps here, so nothing is sent, and all that runs is of the ps."""
  with tf.device(ps.name):
    model = local_loop.Model()
  tracker = global_step.GlobalStepTracker()
  hook = traffic_report.TrafficReport(
    tracker, [model.train_op, model.loss], "/job:worker/task:0", directory=str(tmp_path),
    first_run=3, every_secs=0, max_cost=1.0)
  creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(), "grpc://" + ps.address)
  with tf.train.MonitoredSession(creator, [tracker, hook]) as session:
    for _ in range(3000):
      session.run([model.train_op, model.loss])
      if hook.shares:
        break
  assert hook.shares[0].computing == 0 < hook.shares[0].pulling
  tf.summary.FileWriterCache.get(str(tmp_path)).close()
  file, = glob.glob(str(tmp_path / "*"))
  tags = {value.tag for event in tf.train.summary_iterator(file) for value in event.summary.value}
  names = ["bytes_down", "bytes_up", "messages_down", "messages_up"]
  assert tags >= {"traffic/" + name for name in names + list(step_time.TimeShares._fields[:4])}


# The same of the default flags: worker_test.py, test_three_workers_stop_together.
@pytest.mark.slow
def test_the_last_line_of_a_job(start):
  job = Job(start, num_ps=2, num_workers=2, flags=["--steps=300", "--sync_replicas"])
  ps, workers = job.all()
  assert codes(*workers, *ps) == [0] * 4
  assert re.search(", " + LINE + r", [\d.]+ s, reached", workers[0].last_line), workers[0].last_line
  assert "sent" not in workers[1].last_line
