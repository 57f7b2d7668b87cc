"""A job trains on among strangers at all of its ports, while a worker and a ps return.

The same job has the same kills first without strangers: its processes then are the measure.
"""
from __future__ import annotations

import json
import re
import ssl
import time
import urllib.request

import pytest
import tensorflow.compat.v1 as tf

from tests import harness, links_tasks, needs, program_tasks
from tests.survival import strangers
from tests.training.job import Job
from tf1ps.cluster import Task, probe_task
from tf1ps.links import NamespaceError, check_namespaces, make_certificates
from tf1ps.monitoring import ask_here, ask_status

pytest.importorskip("prometheus_client")

LIMIT = 2 * harness.LIMIT
# How much more than without strangers a process may have of memory, threads and open files.
MORE = strangers.Size(megabytes=128.0, threads=400, files=3 * strangers.MOST_HELD)
# TensorFlow 1.15 keeps a connection that has sent nothing for so many seconds, also a closed one.
KEPT = 120 if tf.VERSION.startswith("1.") else 0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Attacked(object):
  """A job of one ps and two workers, with metrics, and its ports."""

  def __init__(self, start, folder, tls_dir):
    self._start, self._stop, self._tls_dir = start, folder / "stop", tls_dir
    flags = [] if tls_dir is None else ["--tls_dir=" + tls_dir]
    self._job = Job(start, heartbeat_timeout=30.0, flags=[
      "--steps=1000000", "--step_seconds=0.02", "--save_checkpoints=secs:1",
      "--checkpoint_dir=%s" % (folder / "model"), "--stop_when=%s" % self._stop, *flags])
    metrics = harness.addresses(2)
    self._ps_flags = [*flags, "--metrics_port=" + metrics[0]]
    self._worker_flags = ["--metrics_port=" + metrics[1]]
    self.ps, self.worker = self._job.jobs["ps"][0], self._job.jobs["worker"][1]
    self.metrics = dict(zip(("ps 0", "worker 1"), metrics))
    self.tasks = {}
    self._begin("ps 0")
    for index in (0, 1):
      self._begin("worker %d" % index)
    self.page = None
    self.go_on()
    if tls_dir is None:
      self.page = harness.addresses(1)[0]
      self.tasks["top"] = start("top", program_tasks.run_program, "tf1ps-top", [
        "--ps_hosts=" + self.ps, "http://" + self.page, "--start_timeout=30"], folder)
      self.tasks["top"].wait_for("shows the job")

  def _begin(self, name):
    job, index = name.split()
    more = {"ps 0": self._ps_flags, "worker 1": self._worker_flags}.get(name, [])
    self.tasks[name] = getattr(self._job, job)(int(index), *more)

  def go_on(self):
    """Waits until each worker makes further steps. The chief says so."""
    before = self._steps()
    self.tasks["worker 0"].wait_for("progress: step", LIMIT, len(self.tasks["worker 0"].lines))
    harness.wait_until(lambda: self._steps() > before, LIMIT,
                       lambda: "a step of worker 1:\n" + self._outputs())

  def _outputs(self):
    """The ends of what the tasks have printed, for the message of a failure."""
    return "\n".join("%s, %s:\n%s" % (
      name, "alive" if task.is_running else "ended", task.output[-2000:])
      for name, task in self.tasks.items())

  def _steps(self):
    """The steps of worker 1, as its metrics have them; 0 if it does not answer."""
    text = _try(lambda: _get(self.metrics["worker 1"], "/metrics")) or ""
    found = re.search(r"^tf1ps_steps_total\{.*\} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0

  def lose_and_return(self, name):
    """Kills a task and starts it again; returns the seconds until all workers train on."""
    at = time.monotonic()
    others = {each: len(task.lines) for each, task in self.tasks.items()}
    self.tasks[name].kill()
    self._begin(name)
    if name == "ps 0":
      for worker in ("worker 0", "worker 1"):
        self.tasks[worker].wait_for("recovered: session", LIMIT, others[worker])
    self.go_on()
    return time.monotonic() - at

  def pids(self):
    """The processes that strangers reach, by name."""
    found = {"ps 0": self.tasks["ps 0"].pid, "worker 1": self.tasks["worker 1"].pid}
    if "top" in self.tasks:
      found["top"] = self.tasks["top"].pid
    for name, pid in list(found.items()) if self._tls_dir else ():
      try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
          child = int(file.read().split()[0])
        with open("/proc/%d/cmdline" % child) as file:
          if "sidecar.main" in file.read():  # before, it is a copy of its task
            found["sidecar of " + name] = child
      except (OSError, IndexError):  # it has just ended, or has none yet
        pass
    return found

  def ports(self, recorded):
    """All ports of the job: `strangers.Port`."""
    scrape = b"GET /metrics HTTP/1.0\r\nHost: me\r\n\r\n"
    question = (self.ps + "\n").encode()
    found = [strangers.Port("metrics", address, scrape, scrape)
             for address in self.metrics.values()]
    if self._tls_dir is None:
      request, look = strangers.grpc_request(), b"GET /status HTTP/1.0\r\n\r\n"
      found += [strangers.Port("ps", self.ps, request, recorded[self.ps]),
                strangers.Port("worker", self.worker, request, recorded[self.worker]),
                strangers.Port("page", self.page, look, look)]
    else:
      hello = strangers.client_hello()
      found += [strangers.Port("ps, TLS", self.ps, hello, recorded[self.ps]),
                strangers.Port("worker, TLS", self.worker, hello, recorded[self.worker])]
    return found + [strangers.Port("status", "@" + self.ps, question, question)]

  # Whoever belongs there, and gets an answer.

  def ask_all(self):
    """Asks each port as who belongs there; returns {its name: seconds}."""
    asks = {"metrics of " + name: lambda address=address: _scrape(address)
            for name, address in self.metrics.items()}
    for name, address in (("ps 0", self.ps), ("worker 1", self.worker)):
      asks[name] = lambda name=name, address=address: self._call(name, address)
    if self.page:
      asks["page"] = lambda: _get(self.page, "/status").startswith("<header>")
      asks["status"] = lambda: ask_here([self.ps]) or ask_status([self.ps], 5.0)
    seconds = {}
    for name, ask in asks.items():
      began = time.monotonic()
      harness.wait_until(lambda ask=ask: _try(ask), 2 * LIMIT, lambda name=name: (
        "an answer of %s\n%s\n" % (name, self._outputs())))
      seconds[name] = time.monotonic() - began
    return seconds

  def _call(self, name, address):
    if self._tls_dir is None:
      job, index = name.split()
      return probe_task(Task(job, int(index), address), 5.0).is_up
    with strangers.connect(address) as plain:
      context = links_tasks.context_of(self._tls_dir)
      with context.wrap_socket(plain, server_hostname="127.0.0.1") as link:
        return link.recv(1) == b"+"

  def end(self):
    """Ends the job; returns the exit codes."""
    self._stop.write_text("")
    top = self.tasks.pop("top", None)
    if top is not None:
      top.signal(2)
    return {task.name: task.wait(LIMIT) for task in [*self.tasks.values(), *filter(None, [top])]}


def _get(address, path):
  return _OPENER.open("http://%s%s" % (address, path), timeout=5.0).read().decode()


def _scrape(address):
  return _get(address, "/healthz") == "ok\n" and _get(address, "/metrics").startswith("# HELP")


def _try(ask):
  try:
    return ask()
  except (OSError, ssl.SSLError, RuntimeError):
    return False


def disturb(job):
  """Kills a worker and a ps, which return; returns the seconds, and the answers' longest ones."""
  seconds, answers = {}, {}
  for name in ("worker 1", "ps 0"):
    seconds[name] = job.lose_and_return(name)
    for _ in range(3):
      for port, took in job.ask_all().items():
        answers[port] = max(took, answers.get(port, 0.0))
  return seconds, answers


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("has_links", [False, True], ids=["plain", "tls"])
def test_a_job_trains_on_among_strangers(start, tmp_path, has_links):
  tls_dir = None
  if has_links:
    try:
      check_namespaces()
    except NamespaceError as error:
      needs.skip("namespaces", error)
    tls_dir = make_certificates(str(tmp_path / "certs"), [["127.0.0.1"]], 1)[0]
  job = Attacked(start, tmp_path, tls_dir)
  try:
    recorder = strangers.Recorder([job.ps, job.worker])
  except PermissionError:
    needs.skip("packet counters")
  alone, among = strangers.Sizes(job.pids), strangers.Sizes(job.pids)
  with recorder, alone:
    took, answered = disturb(job)
  recorded = {address: recorder.longest(address) for address in (job.ps, job.worker)}
  assert all(len(each) > 1000 for each in recorded.values()), recorded
  attackers = [start("strangers at %s" % port.name, strangers.attack, [port])
               for port in job.ports(recorded)]
  with among:
    for each in attackers:
      each.wait_for("{")
    took_among, answered_among = disturb(job)
    harness.wait_until(lambda: all(_has_attacked(each) for each in attackers),
                       what=lambda: "a turn of each kind: %s" % [a.lines[-1] for a in attackers])
  counts = [json.loads(each.lines[-1]) for each in attackers]
  for each in attackers:
    each.kill()
  harness.wait_until(lambda: not _left(job, alone), LIMIT + KEPT, lambda: "%s of the strangers" % (
    _left(job, alone)))
  codes = job.end()
  figures = {"kind": "tls" if has_links else "plain", "took": [took, took_among],
             "answered": [answered, answered_among], "sizes": [alone.largest, among.largest],
             "turns": counts}
  print(json.dumps(figures))
  assert set(codes.values()) == {0}, codes
  # On a busy machine an answer takes a while without strangers, too.
  limit = strangers.ANSWER_LIMIT + 5.0 * max(answered.values())
  assert max(answered_among.values()) <= limit, figures
  for name, size in among.largest.items():
    assert size.megabytes <= alone.largest[name].megabytes + MORE.megabytes, (name, figures)
    assert size.threads <= alone.largest[name].threads + MORE.threads, (name, figures)
    silent = strangers.SILENT_PER_SECOND * KEPT
    assert size.files <= alone.largest[name].files + MORE.files + silent, (name, figures)


def _has_attacked(attacker):
  return attacker.lines and all(
    all(each.values()) for each in json.loads(attacker.lines[-1]).values())


def _left(job, alone):
  """What strangers have left in processes: more threads or files than there were without them.

  A sidecar has up to 48 spare sockets at hand, and a server a few connections more after a loss.
  """
  found = {}
  for name, pid in job.pids().items():
    now, before = strangers.size_of(pid), alone.largest[name]
    if now.files > before.files + 50 or now.threads > before.threads + 10:
      found[name] = now
  return found
