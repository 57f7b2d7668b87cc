"""TensorBoard as the page of a job, in a real browser."""
from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests import browser, harness, program_tasks

# One page has twelve charts.
CHARTS = [
  "accuracy", "examples_per_sec/worker_0", "examples_per_sec/worker_1", "learning_rate", "loss",
  "staleness", "steps_per_sec/worker_0", "traffic/computing", "traffic/job_ps_task_0/bytes_down",
  "traffic/pulling", "traffic/pushing", "traffic/waiting"]
OTHER_TAGS = ["steps_per_sec/worker_1", "traffic/job_ps_task_0/bytes_up"]
# How many lines, points or histograms each chart has, by its tag.
DRAWN = """Object.fromEntries([...document.querySelectorAll('card-view')].map(card => [
  (card.querySelector('[title]') || card).innerText.replace(/\\s+/g, ''),
  card.querySelectorAll('.series-view path, .series-view circle, g.histogram path').length]))"""


def get(url):
  """Returns the text of a page; None if nobody answers."""
  direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
  try:
    with direct.open(url, timeout=30) as answer:
      return answer.read().decode("utf-8")
  except (urllib.error.URLError, OSError):
    return None


def tags_of(url):
  """The tags that TensorBoard has read so far."""
  found = set()
  for plugin in "scalars", "histograms":
    runs = json.loads(get("%sdata/plugin/%s/tags" % (url, plugin)) or "{}")
    found.update(tag for tags in runs.values() for tag in tags)
  return found


@contextlib.contextmanager
def board(directory):
  """Starts TensorBoard; yields its address, where it will answer."""
  address, = harness.addresses(1)
  host, _, port = address.rpartition(":")
  with subprocess.Popen(
      [sys.executable, "-m", "tensorboard.main", "--logdir=%s" % directory, "--host=" + host,
       "--port=" + port, "--reload_interval=5"], stderr=subprocess.DEVNULL) as process:
    try:
      yield "http://%s/" % address
    finally:
      process.terminate()


@pytest.mark.slow
@pytest.mark.any_tensorflow
@pytest.mark.timeout(400)
def test_the_page_of_a_job_has_its_charts_its_graph_and_its_flags(start, tmp_path):
  with browser.page(width=2000, height=2400) as page, board(tmp_path) as url:
    job = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", [
      "--program=examples/digits.py", "--epochs=100000", "--learning_rate=0.01",
      "--evaluator", "--checkpoint_dir=%s" % tmp_path, "--save_summary_steps=20",
      "--save_checkpoints=steps:500", "--heartbeat_timeout=600"], str(browser.ROOT))
    wanted = {*CHARTS, *OTHER_TAGS}
    harness.wait_until(lambda: tags_of(url) >= wanted, limit=120.0,
                       what=lambda: wanted - tags_of(url))
    # The tasks rest from here on: a browser that draws in software needs all processors.
    for pid in re.findall(r"(?:ps|worker|evaluator) \d+ \(process (\d+)\)",
                          job.wait_for(": started ")):
      os.kill(int(pid), signal.SIGSTOP)

    page.open(url + "?tagFilter=%5E(" + "%7C".join(CHARTS) + ")%24#timeseries")
    drawn = {}

    def have_lines():
      drawn.clear()
      drawn.update(page.run(DRAWN))
      drawn.pop("", None)  # a place that has no chart yet
      return sorted(drawn) == sorted(CHARTS) and all(drawn.values())

    harness.wait_until(have_lines, limit=120.0, what=lambda: drawn)
    if os.environ.get("TF1PS_SCREENSHOT"):  # a new picture for docs/monitoring.md
      page.save(os.environ["TF1PS_SCREENSHOT"])

    page.open(url + "#text")
    harness.wait_until(lambda: "--learning_rate=0.01" in page.text, what=lambda: page.text)

    page.open(url + "#graphs")
    harness.wait_until(lambda: page.click("paper-radio-button", "Device"), what=lambda: page.text)
    harness.wait_until(
      lambda: all("job:%s/task:0/device" % name in page.text for name in ("ps", "worker")),
      what=lambda: page.text)
    job.signal(signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM
