from __future__ import annotations

import html
import re
import signal
import threading
import urllib.request

import pytest

from tests import browser, harness, program_tasks
from tests.monitoring import sample_status, status_test
from tf1ps.monitoring import metrics_address, metrics_server, status_text, web


def with_steps(*steps):
  """A page that has seen the sample's job at these global steps, with a loss of 1 / step."""
  page = None
  for step in steps:
    now = sample_status.make()
    job, = now.jobs
    tasks = [one._replace(loss=1.0 / step) if one.role == "chief" else one for one in job.tasks]
    now = now._replace(jobs=[job._replace(global_step=step, tasks=tasks)])
    page = page or web.StatusPage(now)
    page.add(now)
  return page


def curves(page):
  """The numbers of points of the curves."""
  return [len(points.split()) for points in re.findall('<polyline [^>]*points="([^"]*)"',
                                                       page.text())]


@pytest.mark.any_tensorflow
def test_the_page_has_each_cell_of_the_tables():
  text = web.StatusPage(sample_status.make()).text()
  job, = sample_status.make().jobs
  for section in status_text.sections(job):
    for row in section.rows:
      for cell in row:
        assert ">%s<" % html.escape(cell) in text
  assert '<tr class="lost"><td class="text">worker 1</td>' in text
  assert "Job in container digits-1db7, run r1<" in text


@pytest.mark.any_tensorflow
def test_names_are_escaped():
  now = sample_status.make()
  bad = "<script>alert('x')</script>\""
  job = now.jobs[0]._replace(container=bad, run=bad, state=bad, checkpoint_note=bad,
                             checkpoint=None)
  job = job._replace(tasks=[one._replace(host=bad, reason=bad, state=bad) for one in job.tasks],
                     queues=[one._replace(name=bad) for one in job.queues])
  page = web.StatusPage(now._replace(jobs=[job], asked=bad))
  page.fail(bad)
  assert "<script" not in page.text() and "'x'" not in page.text()
  assert page.text().count("&lt;script&gt;") > 10


@pytest.mark.any_tensorflow
def test_the_curves_follow_the_global_step():
  assert curves(with_steps(10)) == []
  assert curves(with_steps(10, 20, 20, 40)) == [3, 3]
  assert curves(with_steps(10, 20, 30, 40, 20, 25)) == [3, 3]  # a ps was lost: 10, 20, 25
  text = with_steps(100, 200, 400).text()
  # The loss falls from 0.01 to 0.0025: y grows downwards.
  points = re.search('points="([^"]*)"', text).group(1).split()
  xs, ys = zip(*(map(float, point.split(",")) for point in points))
  assert list(xs) == sorted(xs) and list(ys) == sorted(ys)
  assert (xs[1] - xs[0]) * 2 == pytest.approx(xs[2] - xs[1], abs=0.2)
  for tick in ("100", "200", "300", "400", "0.004"):
    assert ">%s</text>" % tick in text


@pytest.mark.any_tensorflow
def test_a_long_run_keeps_its_begin_and_a_bounded_number_of_points():
  page = with_steps(*range(1, 2500))
  assert web._POINTS // 2 <= curves(page)[0] <= web._POINTS
  points, = page._points.values()
  assert (points[0][0], points[-1][0]) == (1, 2499)


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("low, high, ticks", [
  (0.0, 1.0, [0.0, 0.5, 1.0]), (0.0, 41.0, [0.0, 20.0, 40.0]), (3.0, 3.0, [3.0]),
  (-2.0, 2.0, [-2.0, -1.0, 0.0, 1.0, 2.0]),
  (1e-5, 3e-5, [1e-5, 1.5e-5, 2e-5, 2.5e-5, 3e-5])])
def test_ticks_are_round_numbers(low, high, ticks):
  assert web._ticks(low, high, 4) == pytest.approx(ticks)


@pytest.mark.any_tensorflow
def test_a_job_without_an_answer_keeps_its_last_status():
  page = with_steps(10, 20)
  page.fail("10.0.0.1:2222: refused (nothing listens on that port)")
  assert "No ps answers any more" in page.text() and "nothing listens" in page.text()
  assert "<b>no answer</b>" in page.text() and "<b>running</b>" not in page.text()
  assert "worker 1" in page.text() and curves(page) == [2, 2]
  page.add(sample_status.make())
  assert "No ps answers" not in page.text()


@pytest.mark.any_tensorflow
def test_the_page_loads_nothing_from_elsewhere():
  answers = {}

  def ask(path):
    def start(state, headers):
      answers[path] = state, dict(headers)

    return b"".join(with_steps(10, 20)({"PATH_INFO": path}, start)).decode()

  frame = ask("/")
  assert frame.startswith("<!DOCTYPE html>") and "<main>" in frame
  assert not re.search(r"(?:src|href)=(?!\"data:,\")|url\(|@import|http://|https://", frame)
  assert "<html" not in ask("/status") and "worker 1" in ask("/status")
  ask("/elsewhere")
  assert [state for state, _ in answers.values()] == ["200 OK", "200 OK", "404 Not Found"]
  for _, headers in answers.values():
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ") and "script-src 'sha256-" in policy


@pytest.mark.any_tensorflow
def test_each_answer_is_complete_and_a_taken_address_is_refused():
  free, = harness.addresses(1)
  address = metrics_address.parse_metrics_address(free.rpartition(":")[2])
  assert address.host == "127.0.0.1"
  page = with_steps(10, 20)
  server = metrics_server.make_http_server(address, page)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  try:
    for path in ("", "status", "status"):
      page.fail(10 * path)
      before = page.text()  # it has the time
      url = "http://%s/%s" % (address, path)
      with urllib.request.urlopen(url, timeout=harness.LIMIT) as answer:
        text = answer.read().decode()
        assert before in text or page.text() in text
    with pytest.raises(metrics_address.MetricsError, match=(
        "the page cannot be served at %s: .* Give another http://HOST:PORT" % (address,))):
      page.serve(address)
  finally:
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.slow
@pytest.mark.any_tensorflow
def test_a_browser_shows_the_job_from_its_begin_to_its_end(start, tmp_path):
  ps = []

  def start_one(name, *args):
    started = start(name, *args)
    if name == "ps":
      ps.append(started)
    return started

  (_, address), workers = status_test.begin(start_one, tmp_path, *status_test.ENDLESS)
  workers[0].wait_for("progress: step")
  port = harness.addresses(1)[0].rpartition(":")[2]
  top = start("top", program_tasks.run_program, "tf1ps-top",
              ["--ps_hosts=" + address, "http://" + port, "--start_timeout=30"], tmp_path)
  top.wait_for("tf1ps-top: http://127.0.0.1:%s/ shows the job" % port)
  with browser.page(width=1200, height=1000) as page:
    page.open("http://127.0.0.1:%s/" % port)

    def step():
      found = re.search(r"global step\s+([\d,]+)", page.text)
      return int(found.group(1).replace(",", "")) if found else 0

    def wait(condition, what):
      return harness.wait_until(condition, what=lambda: "%s:\n%s" % (what, page.text))

    first = wait(step, "a step")
    wait(lambda: step() > first, "a later step")
    for name in ("ps 0", "ps 1", "worker 0 (chief)", "worker 1"):
      assert name in page.text
    wait(lambda: page.run("document.querySelectorAll('polyline').length") == 2, "two curves")
    width, height = page.run("(box => [box.width, box.height])("
                             "document.querySelector('polyline').getBoundingClientRect())")
    assert width > 100 and height > 1
    workers[1].kill()
    wait(lambda: page.run("document.querySelectorAll('tr.lost').length") == 1, "a lost task")
    ink, lost = page.run("['tr', 'tr.lost td'].map(one => getComputedStyle("
                         "document.querySelector('tbody ' + one)).color)")
    assert ink != lost
    for task in (workers[0], *ps):
      task.kill()
    wait(lambda: "No ps answers any more" in page.text, "the end of the job")
    assert "worker 0 (chief)" in page.text
    top.signal(signal.SIGINT)
    assert top.wait() == 0, top.output
    wait(lambda: page.run("getComputedStyle(document.querySelector('#left')).display") == "block",
         "the end of tf1ps-top")
