from __future__ import annotations

import io
import json
import re

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps import pipeline
from tf1ps.checkpoint import global_step
from tf1ps.compat import json_lines
from tf1ps.training import epochs, execution, options, progress
from tf1ps.training.counts import ExampleCounter


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


class Screen(io.StringIO):
  """A stream that may be a terminal."""

  def __init__(self, is_terminal):
    super().__init__()
    self._is_terminal = is_terminal

  def isatty(self):
    return self._is_terminal


def make(stream, last_step=None):
  model = local_loop.Model()
  counts = local_loop.counts(8, model.loss)
  return [counts.tracker, ExampleCounter(counts), execution.Execution(counts, stops=None),
          progress.Progress(counts, last_step, stream)]


def began_then_went_on(hook):
  """Returns a time four seconds after a mark, with 200 steps, half of them this worker's."""
  counts = hook._counts
  counts.tracker.value, counts.examples = 100, 1000
  hook.after_create_session(None, None)
  hook._since = hook._began
  counts.tracker.value, counts.tracker.own_steps, counts.examples, hook.loss = 300, 100, 1800, 0.25
  return hook._since.time + 4.0


@pytest.mark.parametrize("last_step, text", [
  (None, "step 300, loss 0.2500, 50.0 steps/s, 400 examples/s"),
  (1000, "step 300 of 1000, loss 0.2500, 50.0 steps/s, 400 examples/s, 0:14 left"),
  (10000, "step 300 of 10000, loss 0.2500, 50.0 steps/s, 400 examples/s, 3:14 left"),
  (300, "step 300 of 300, loss 0.2500, 50.0 steps/s, 400 examples/s, 0:00 left"),
  (385000, "step 300 of 385000, loss 0.2500, 50.0 steps/s, 400 examples/s, 2 h 8 min left"),
  (10 ** 8, "step 300 of 100000000, loss 0.2500, 50.0 steps/s, 400 examples/s, 23 d 3 h left"),
])
def test_says_how_far_it_is(last_step, text):
  hook = make(Screen(False), last_step)[-1]
  assert hook.text(began_then_went_on(hook)) == text


@pytest.mark.parametrize("share, rate", [
  (1.0, 200),  # in-graph: the counter has the examples of all
  (4.0, 800)])  # synchronous with four workers: each global step has a batch of each
def test_examples_where_a_step_is_not_one_batch(share, rate):
  hook = progress.Progress(local_loop.counts(8), None, Screen(False), share)
  assert hook.text(began_then_went_on(hook)).endswith("50.0 steps/s, %d examples/s" % rate)


@pytest.mark.parametrize("examples, before, last_step, step, left", [
  # 3600 of 10000 so far, 1600 of them in four seconds
  (10000, 0, None, "step 300 (36%)", "0:16 left"),
  (10000, 2000, None, "step 300 (56%)", "0:11 left"),
  (3000, 0, None, "step 300 (100%)", "0:00 left"),
  (10000, 0, 400, "step 300 of 400", "0:02 left")])  # whatever comes first
def test_the_time_left_until_a_number_of_examples(examples, before, last_step, step, left):
  hook = progress.Progress(local_loop.counts(8), last_step, Screen(False), 2.0,
                           last_example=examples)
  hook._counts.examples_before = before
  first, *_, last = hook.text(began_then_went_on(hook)).split(", ")
  assert (first, last) == (step, left)


def test_a_worker_that_is_not_the_chief_has_its_own_rates():
  hook = progress.Progress(local_loop.counts(8), 1000, Screen(False), is_chief=False)
  assert hook.text(began_then_went_on(hook)) == (
    "step 300 of 1000, loss 0.2500, 25.0 steps/s, 200 examples/s, 0:14 left")


def test_before_anything_has_happened_it_says_so():
  tracker, _, _, hook = make(Screen(False), 10)
  tracker.value = 0
  hook.after_create_session(None, None)
  assert hook.text(hook._began.time + 4.0) == "step 0 of 10, loss nan"


def run_at(hook, monkeypatch, now, step):
  """Has the hook see a run that ends at a time, at a global step; both workers make half each."""
  counts = hook._counts
  monkeypatch.setattr(progress.time, "monotonic", lambda: now)
  counts.tracker.value, counts.tracker.asked = step, True
  counts.tracker.own_steps, counts.examples, counts.losses = step // 2, 8 * step // 2, [0.25]
  hook.after_run(None, None)


def test_rates_count_from_the_last_line_and_without_the_first_step(monkeypatch, set_timing):
  set_timing(progress, first_report=1.0, report_interval=5.0)
  screen = Screen(False)
  hook = progress.Progress(local_loop.counts(8), 1000, screen)
  monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
  hook._counts.tracker.value = 0
  hook.after_create_session(None, None)
  run_at(hook, monkeypatch, 104.0, 2)  # the first step takes long
  run_at(hook, monkeypatch, 105.0, 22)
  run_at(hook, monkeypatch, 109.0, 102)
  run_at(hook, monkeypatch, 114.0, 602)
  hook.after_create_session(None, None)  # a recovery goes back, and has a first step again
  run_at(hook, monkeypatch, 119.0, 500)
  run_at(hook, monkeypatch, 124.0, 550)
  assert [line.split("progress: ")[1] for line in screen.getvalue().splitlines()] == [
    "step 2 of 1000, loss 0.2500",
    "step 102 of 1000, loss 0.2500, 20.0 steps/s, 160 examples/s, 0:45 left",
    "step 602 of 1000, loss 0.2500, 100.0 steps/s, 800 examples/s, 0:04 left",
    "step 500 of 1000, loss 0.2500",
    "step 550 of 1000, loss 0.2500, 10.0 steps/s, 80 examples/s, 0:45 left"]


def test_on_a_terminal_rates_count_from_a_line_that_is_a_second_old(monkeypatch, set_timing):
  set_timing(progress, first_report=1.0, screen_interval=0.25)
  hook = progress.Progress(local_loop.counts(8), None, Screen(True))
  monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
  hook._counts.tracker.value = 0
  hook.after_create_session(None, None)
  shown = []
  for now, step in [(101.0, 2), (101.5, 12), (102.0, 32), (102.5, 102)]:
    run_at(hook, monkeypatch, now, step)
    shown.append(re.findall(r"([\d.]+) steps/s", hook._stream.getvalue())[-1:])
  assert shown == [[], ["20.0"], ["30.0"], ["140.0"]]


def run_and_say_every_step(stream, steps, set_timing):
  set_timing(global_step, global_step_interval=0.0)
  set_timing(progress, first_report=0.0, report_interval=0.0, screen_interval=0.0)
  local_loop.run(make(stream), steps)
  return stream.getvalue()


def test_plain_lines_where_the_output_is_no_terminal(set_timing):
  lines = run_and_say_every_step(Screen(False), 3, set_timing).splitlines()
  assert [re.match(r"\d\d:\d\d:\d\d progress: (step \d, loss [\d.]+)", line).group(1)
          for line in lines] == [
            "step 1, loss 0.0000", "step 2, loss 1.0000", "step 3, loss 2.0000"]


def test_one_line_on_a_terminal(set_timing):
  text = run_and_say_every_step(Screen(True), 3, set_timing)
  assert "\rstep 1, loss 0.0000" in text and "\rstep 3, loss 2.0000, " in text
  assert text.count("\n") == 1 and text.endswith("\n")


def test_figures_where_the_output_is_json(set_timing):
  set_timing(global_step, global_step_interval=0.0)
  set_timing(progress, first_report=0.0, report_interval=0.0)
  out = io.StringIO()
  local_loop.run(make(json_lines.JsonStream(out, "worker 0"), 10), 2)
  records = [json.loads(line) for line in out.getvalue().splitlines()]
  assert [(one["task"], one["step"], one["last_step"], one["loss"]) for one in records] == [
    ("worker 0", 1, 10, 0.0), ("worker 0", 2, 10, 1.0)]
  assert records[0]["message"].startswith("progress: step 1 of 10, loss 0.0000")
  assert records[0]["steps_per_sec"] is None
  assert records[1]["steps_per_sec"] > 0 and records[1]["seconds_left"] > 0


def test_says_nothing_in_the_first_second(set_timing):
  set_timing(progress, first_report=3600.0)
  stream = Screen(False)
  local_loop.run(make(stream), 300)
  assert stream.getvalue() == ""


@pytest.mark.parametrize("sizes, total", [
  ([50], 3000), ([lambda data: data], 3000), ([lambda data: data.repeat()], None),
  ([lambda data: data.filter(lambda x: x > 3)], None), ([50, 50], None), ([], None)])
def test_the_examples_of_all_epochs(sizes, total):
  with tf.Graph().as_default(), tf.Session() as session:
    shard = pipeline.Shard(epochs=20)
    for size in sizes:
      if isinstance(size, int):
        shard.sizes.append(size)
      else:
        shard.dataset(size(tf.data.Dataset.range(50)))
    made = options.Options(epochs=20)
    assert epochs.total_examples(session, shard, made, 3) == total
    assert epochs.total_examples(session, shard, options.Options(steps=20), 3) is None


def test_the_time_left_of_epochs():
  *hooks, shown = make(Screen(False), None)
  shown._find_last_example = lambda session: 3200
  local_loop.run([*hooks, shown], 100)
  hooks[0].value = 100  # it is not asked for in each step
  # 800 of 3200 examples in 2 s.
  shown._since = shown._began._replace(time=0.0)
  assert shown.figures(2.0).seconds_left == pytest.approx(6.0)
