from __future__ import annotations

import contextlib
import json
import math
import pathlib
import re
import sys
import threading
import urllib.error
import urllib.request

import pytest

from tests import harness, program_tasks, strangers
from tests.cli import commands
from tests.monitoring import sample_status
from tf1ps.monitoring import figures, metrics, metrics_address, metrics_server
from tf1ps.replication import Ages
from tf1ps.state import heartbeat

prometheus_client = pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "examples" / "deploy" / "grafana.json"
FIGURES = figures.WorkerFigures(
  steps=610, examples=19520, late_examples=64, loss=0.25, ages=Ages({0: 5, 1: 3, 3: 2, 300: 1}),
  dropped=2, skipped=5, sessions=3, is_open=True, checkpoint_dir="/c", checkpoint_step=1200,
  checkpoint_age=30.0, checkpoints=4, rolled_back=7,
  traffic={name: tuple(values) for name, values in sample_status.TRAFFIC.items()})


def member(job="worker", **fields):
  _, record = sample_status.member(job, 0, **fields)
  return heartbeat.Member(age=0.0, **record.value)


def view(**fields):
  return metrics.View(**dict(dict(
    is_ready=True, member=member(role="chief", global_step=1234), figures=FIGURES, silence=0.5,
    states={"training": 2, "lost": 1}), **fields))


def scrape(seen, labels=("worker", "chief", "0"), run="r1"):
  """The samples of a scrape, by name and further labels, as the client's own parser reads them."""
  registry = prometheus_client.CollectorRegistry()
  registry.register(metrics.Collector(labels, lambda: seen))
  return samples(prometheus_client.generate_latest(registry).decode(), labels, run)


def samples(text, labels, run):
  expected = dict(zip(metrics.LABELS, (*labels, run)))
  found = {}
  for family in text_string_to_metric_families(text):
    for sample in family.samples:
      if sample.name.startswith(metrics.PREFIX):
        found_labels = {name: sample.labels.get(name) for name in expected}
        assert found_labels == {**expected, "run": found_labels["run"] if run is None else run}
        further = tuple(v for k, v in sorted(sample.labels.items()) if k not in expected)
        found[(sample.name,) + further] = sample.value
  return found


def test_the_metrics_of_a_chief():
  found = scrape(view())
  assert found["tf1ps_steps_total",] == 610 and found["tf1ps_examples_total",] == 19520
  assert found["tf1ps_late_examples_total",] == 64
  assert found["tf1ps_dropped_gradients_total",] == 2
  assert found["tf1ps_skipped_records_total",] == 5
  assert found["tf1ps_recoveries_total",] == 2 and found["tf1ps_ready",] == 1
  assert found["tf1ps_global_step",] == 1234 and found["tf1ps_loss",] == 0.25
  assert found["tf1ps_checkpoints_total",] == 4 and found["tf1ps_last_checkpoint_step",] == 1200
  assert found["tf1ps_rolled_back_steps_total",] == 7 and found["tf1ps_stalled",] == 0
  assert found["tf1ps_step_bytes", "received", "1"] == 41000
  assert found["tf1ps_step_messages", "sent", "0"] == 3
  assert found["tf1ps_tasks", "lost"] == 1 and found["tf1ps_heartbeat_silence_seconds",] == 0.5
  assert any(name[0] == "tf1ps_build_info" for name in found)
  assert not any(name[0].startswith(("tf1ps_eval", "tf1ps_clients")) for name in found)


def test_the_ages_of_gradients_are_a_histogram():
  found = scrape(view())
  buckets = {name[1]: value for name, value in found.items()
             if name[0] == "tf1ps_gradient_age_steps_bucket"}
  assert (buckets["0.0"], buckets["1.0"], buckets["2.0"], buckets["4.0"], buckets["256.0"]) == (
    5, 8, 8, 10, 10)
  assert buckets["+Inf"] == found["tf1ps_gradient_age_steps_count",] == 11
  assert found["tf1ps_gradient_age_steps_sum",] == 3 + 6 + 300


def test_what_is_not_known_is_left_out():
  found = scrape(view(member=member(role="worker"), figures=figures.WorkerFigures(), states={}))
  for name in ("loss", "global_step", "checkpoints_total", "gradient_age_steps_count"):
    assert ("tf1ps_" + name,) not in found
  assert found["tf1ps_steps_total",] == 0 and found["tf1ps_recoveries_total",] == 0
  assert sorted(scrape(metrics.View(False), run="")) == sorted([
    name for name in found if name[0] in ("tf1ps_build_info", "tf1ps_ready")])


def test_the_metrics_of_a_ps_and_of_an_evaluator():
  found = scrape(view(member=member("ps", connections=2), figures=None), ("ps", "ps", "0"))
  assert found["tf1ps_clients",] == 2 and ("tf1ps_steps_total",) not in found
  seen = metrics.View(True, evaluator=figures.EvaluatorFigures(3, 1200, {"accuracy": 0.9}, "r2"))
  found = scrape(seen, ("evaluator", "evaluator", "0"), "r2")
  assert found["tf1ps_evaluations_total",] == 3 and found["tf1ps_evaluated_step",] == 1200
  assert found["tf1ps_evaluation", "accuracy"] == 0.9


def test_a_loss_that_is_no_number_is_served():
  assert math.isnan(scrape(view(figures=FIGURES._replace(loss=float("nan"))))["tf1ps_loss",])


@pytest.mark.any_tensorflow
def test_names_follow_prometheus():
  for one in metrics.TABLE:
    assert re.fullmatch("[a-z][a-z_]*", one.name) and not one.name.endswith(("_total", "_info"))
    assert one.help.endswith(".") and not set(one.labels) & {*metrics.LABELS, "pid", "address"}
  assert len({one.full_name for one in metrics.TABLE}) == len(metrics.TABLE)


@pytest.mark.any_tensorflow
def test_the_page_has_the_table():
  assert metrics.metrics_table() in (ROOT / "docs" / "monitoring.md").read_text()


@pytest.mark.any_tensorflow
def test_the_dashboard_asks_for_metrics_that_are_served():
  queries = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"]
             for target in panel.get("targets", [])]
  served = {one.full_name: one for one in metrics.TABLE}
  served.update({name + ending: one for name, one in list(served.items())
                 if one.kind == metrics.HISTOGRAM for ending in ("_bucket", "_sum", "_count")})
  asked = set()
  for query in queries:
    names = re.findall(r"tf1ps_\w+", query)
    assert names, query
    for name in names:
      assert name in served, query
      asked.add(name)
      used = re.findall(r"(?:rate|increase)\(%s" % name, query)
      # The value of a counter says little without its rate.
      assert bool(used) == (served[name].kind != metrics.GAUGE), query
    for label in re.findall(r"(?:by|on) \(([^)]+)\)", query):
      further = {each for name in names for each in served[name].labels}
      assert set(re.split(r",\s*", label)) <= {*metrics.LABELS, *further, "le"}, query
  assert len(asked) >= 10


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("text, address, shown", [
  ("9100", ("127.0.0.1", 9100), "127.0.0.1:9100"), ("0.0.0.0:9100", ("0.0.0.0", 9100),
                                                   "0.0.0.0:9100"),
  ("[::]:80", ("::", 80), "[::]:80"), ("node-1.example:65535", ("node-1.example", 65535),
                                       "node-1.example:65535")])
def test_addresses(text, address, shown):
  found = metrics_address.parse_metrics_address(text)
  assert found == address and str(found) == shown


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("text", ["", "0", "65536", "http://a:1", "a:", ":9100", "::1:90", "a b:1"])
def test_addresses_that_are_refused(text):
  with pytest.raises(ValueError, match="must be a port from 1 to 65535, or HOST:PORT"):
    metrics_address.parse_metrics_address(text)


def get(address, path):
  """Returns (status, text) of a request."""
  try:
    with urllib.request.urlopen("http://%s%s" % (address, path), timeout=harness.LIMIT) as answer:
      return answer.status, answer.read().decode()
  except urllib.error.HTTPError as error:
    return error.code, error.read().decode()


@pytest.fixture
def server(monkeypatch):
  monkeypatch.setattr(heartbeat, "_latest", None)
  address, = harness.addresses(1)
  made = metrics_server.MetricsServer(
    metrics_address.parse_metrics_address(address), "worker", "chief", 0)
  yield made, address
  made.close()


class Beat:
  """As much of a heartbeat as a scrape uses."""

  def __init__(self, state, silence=0.2, seen=None, blocked=""):
    self._fields = {"state": state, "blocked": blocked}
    self.silence, self._seen = silence, seen

  def get(self, field):
    return self._fields[field]

  def figures(self):
    return self._seen

  def own(self):
    return member(role="chief", **self._fields)

  def members(self):
    return [self.own()]


def test_health(server, monkeypatch):
  _, address = server
  assert get(address, "/healthz") == (200, "ok\n")
  assert get(address, "/readyz") == (503, "starting\n")
  assert get(address, "/other") == (404, "see /metrics, /healthz and /readyz\n")
  for beat, code, text in [
      (Beat("training", None), 503, "the task that keeps the heartbeats has not answered yet"),
      (Beat("training"), 503, "no session is open (training)"),
      (Beat("training", seen=FIGURES._replace(is_open=False)), 503,
       "no session is open (training)"),
      (Beat("training", seen=FIGURES), 200, "its session is open"),
      (Beat("training", seen=FIGURES._replace(stalled=(42.4, 0.25))), 503,
       "stalled: its step has lasted 42 s, and none of the last steps took longer than 0.25 s"),
      (Beat("training", seen=FIGURES, blocked="the queue batches"), 503,
       "stalled: it waits for the queue batches"),
      (Beat("serving"), 200, "serves"), (Beat("done", seen=FIGURES), 503,
                                         "no session is open (done)")]:
    monkeypatch.setattr(heartbeat, "_latest", beat)
    assert get(address, "/readyz") == (code, text + "\n")
    found = samples(get(address, "/metrics")[1], ("worker", "chief", "0"), "r1")
    assert found["tf1ps_ready",] == (code == 200)
    assert found.get(("tf1ps_stalled",), 0) == text.startswith("stalled")


@pytest.fixture
def patience(monkeypatch):
  """Has the server wait for requests for longer than a test takes: it closes nothing for that."""
  monkeypatch.setattr(metrics_server._Handler, "timeout", 1000.0)


@contextlib.contextmanager
def serving(answer):
  """A server with an application of the test's own; yields its address."""
  address, = harness.addresses(1)
  made = metrics_server.make_http_server(metrics_address.parse_metrics_address(address), answer)
  thread = threading.Thread(target=made.serve_forever, args=(0.02,))
  thread.start()
  try:
    yield address
  finally:
    made.shutdown()
    made.server_close()
    thread.join()


def test_connections_without_a_request_have_a_bounded_number_of_places(
    server, monkeypatch, patience):
  _, address = server
  monkeypatch.setattr(metrics_server, "PLACES", 4)
  with strangers.half_open(address, 20) as connections:
    for each in connections[:16]:
      assert each.recv(1) == b""
    assert get(address, "/healthz") == (200, "ok\n")
    assert connections[16].recv(1) == b"", "it had the oldest place"
    connections[17].setblocking(False)
    with pytest.raises(BlockingIOError):
      connections[17].recv(1)


def test_a_request_that_has_come_keeps_its_place_among_those_that_have_not(monkeypatch, patience):
  monkeypatch.setattr(metrics_server, "PLACES", 4)
  asked, may_answer = threading.Event(), threading.Event()

  def answer(environ, start_response):
    asked.set()
    may_answer.wait(harness.LIMIT)
    start_response("200 OK", [])
    return [b"late"]

  with serving(answer) as address, \
      strangers.half_open(address, 1, first=b"GET / HTTP/1.0\r\n\r\n") as first:
    assert asked.wait(harness.LIMIT)
    with strangers.half_open(address, 20) as silent:
      assert silent[16].recv(1) == b""
      may_answer.set()
      with first[0].makefile("rb") as file:
        assert file.read().endswith(b"late")


def test_readers_that_stand_still_leave_half_of_the_places(monkeypatch, patience):
  monkeypatch.setattr(metrics_server, "PLACES", 4)
  asked, may_answer = threading.Semaphore(0), threading.Event()

  def answer(environ, start_response):
    asked.release()
    may_answer.wait(harness.LIMIT)
    start_response("200 OK", [])
    return [b"late"]

  with serving(answer) as address, \
      strangers.half_open(address, 3, first=b"GET / HTTP/1.0\r\n\r\n") as slow:
    for _ in slow:
      assert asked.acquire(timeout=harness.LIMIT)
    with strangers.half_open(address, 20):
      assert slow[0].recv(1) == b"", "it had the oldest of more than half of the places"
      may_answer.set()
      with slow[2].makefile("rb") as file:
        assert file.read().endswith(b"late")


def test_a_request_without_an_end_is_bounded(server, patience):
  _, address = server
  head = b"GET /healthz HTTP/1.0\r\n" + b"".join(
    b"X-%d: %s\r\n" % (number, b"x" * 2000) for number in range(60))
  with strangers.half_open(address, 1, first=head) as connections:
    assert connections[0].recv(12) == b"HTTP/1.0 200"


def test_many_connections_at_once_are_accepted_at_once():
  address, = harness.addresses(1)
  made = metrics_server.make_http_server(metrics_address.parse_metrics_address(address), None)
  try:
    with strangers.half_open(address, 100) as connections:  # nobody takes them yet
      assert len(connections) == 100
  finally:
    made.server_close()


def test_a_port_that_is_taken(server):
  made, address = server
  with pytest.raises(metrics_address.MetricsError, match=(
      "at %s: .*in use. Give another --metrics_port" % re.escape(address))):
    metrics_server.MetricsServer(metrics_address.parse_metrics_address(address), "ps", "ps", 0)


def test_without_the_client(monkeypatch):
  monkeypatch.setitem(sys.modules, "prometheus_client", None)
  with pytest.raises(metrics_address.MetricsError, match=r'pip install "tf1ps\[metrics\]"'):
    metrics_address.check_prometheus_client()


def consecutive(count):
  """The first of so many free ports that follow each other."""
  while True:
    found = [int(one.rsplit(":", 1)[1]) for one in harness.addresses(count)]
    if found == list(range(found[0], found[0] + count)):
      return found[0]


@pytest.mark.slow
def test_a_job_and_a_restart(start, tmp_path):
  first = consecutive(4)
  launcher = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", [
    commands.LINE, "--steps=1000000", "--step_seconds=0.01", "--num_workers=2", "--evaluator",
    "--checkpoint_dir=c", "--save_checkpoints=secs:0.5", "--restart=on_failure",
    "--metrics_port=%d" % first], tmp_path)
  roles = [("ps", "ps", "0"), ("worker", "chief", "0"), ("worker", "worker", "1"),
           ("evaluator", "evaluator", "0")]
  line = launcher.wait_for("tf1ps-local: metrics: ")
  assert "worker 1 at http://127.0.0.1:%d/metrics" % (first + 2) in line

  def look(index):
    return samples(get("127.0.0.1:%d" % (first + index), "/metrics")[1], roles[index], None)

  def run_of(index):
    text = get("127.0.0.1:%d" % (first + index), "/metrics")[1]
    return re.search(r'tf1ps_ready\{.*run="(\w*)"', text).group(1)

  def ready(index):
    try:
      return get("127.0.0.1:%d" % (first + index), "/readyz")[0] == 200
    except OSError:  # it does not listen yet
      return False

  def wait(index, name, least):
    def once():
      found = look(index).get((name,))
      return found if found is not None and found >= least else None
    return harness.wait_until(once, what="%s of task %d" % (name, index))

  for index in range(4):
    harness.wait_until(lambda index=index: ready(index), what="readiness of task %d" % index)
  assert look(0)["tf1ps_ready",] == 1 and ("tf1ps_clients",) in look(0)
  wait(1, "tf1ps_checkpoints_total", 1)
  wait(3, "tf1ps_evaluations_total", 1)
  assert len({run_of(index) for index in range(4)} - {""}) == 1 and all(map(run_of, range(4)))
  steps = wait(2, "tf1ps_steps_total", 50)
  assert look(2)["tf1ps_examples_total",] >= 32 * 50
  pid = int(re.search(r"worker 1 \(process (\d+)\)", launcher.output).group(1))
  harness.signal_process(pid, 9)
  harness.wait_until(lambda: not ready(2), what="the end of worker 1")
  harness.wait_until(lambda: ready(2), what="another worker 1")
  again = wait(2, "tf1ps_steps_total", 1)
  found = look(2)
  assert again < steps and found["tf1ps_examples_total",] < 32 * steps  # from zero
  assert found["tf1ps_examples_total",] <= 32 * (found["tf1ps_steps_total",] + 2)
