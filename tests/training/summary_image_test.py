from __future__ import annotations

import io

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.checkpoint import global_step
from tf1ps.training import execution, image_path, progress, summary_image

pytestmark = pytest.mark.any_tensorflow  # its environment has matplotlib


def test_the_axes_and_what_they_show():
  points = [summary_image.Point(*one) for one in (
    (0.0, 0, 0, 0.0), (1.0, 5, 10, 320.0), (1.0, 5, 10, 320.0), (3.0, 10, 30, 960.0))]
  figure = summary_image.draw([(1, 8.0), (5, 2.0), (10, 1.0)], points)
  losses, steps, examples = figure.axes
  assert [axes.get_ylabel() for axes in figure.axes] == [
    "loss", "steps/s, all workers", "examples/s, all workers"]
  assert examples.get_xlabel() == "global step"
  assert losses.lines[0].get_xydata().tolist() == [[2.0, 8.0], [10.0, 2.0], [30.0, 1.0]]
  assert steps.lines[0].get_xydata().tolist() == [[5.0, 10.0], [20.0, 10.0]]
  assert examples.lines[0].get_xydata().tolist() == [[5.0, 320.0], [20.0, 320.0]]
  assert [text.get_text() for text in figure.texts] == ["30 steps and 960 examples in 3 s"]


def test_a_wide_range_of_losses_has_a_log_scale():
  points = [summary_image.Point(0.0, 0, 0, 0.0), summary_image.Point(1.0, 2, 2, 2.0)]
  wide = summary_image.draw([(1, 2.0), (2, 0.01)], points).axes[0]
  zero = summary_image.draw([(1, 2.0), (2, 0.0)], points).axes[0]
  assert (wide.get_yscale(), wide.get_ylabel()) == ("log", "loss (log scale)")
  assert (zero.get_yscale(), zero.get_ylabel()) == ("linear", "loss")


def test_a_long_job_keeps_few_values():
  kept = summary_image._Thinned()
  for value in range(100000):
    kept.add(value)
  assert 1000 <= len(kept) <= 2000 and kept[0] == 0 and kept[-1] > 99000
  assert len({b - a for a, b in zip(kept, kept[1:])}) == 1


def train(path, set_timing, steps=4):
  set_timing(global_step, global_step_interval=0.0)
  set_timing(summary_image, global_step_interval=0.0)
  with tf.Graph().as_default():
    model = local_loop.Model()
    fetches = local_loop.fetches(8, model.loss)
    tracker, counter = global_step.GlobalStepTracker(), progress.ExampleCounter(fetches)
    made = execution.Execution(fetches, tracker, counter, stops=None)
    shown = progress.Progress(tracker, counter, made, stream=io.StringIO(), share=2.0)
    hook = summary_image.SummaryImage(str(path), tracker, shown)
    local_loop.run([tracker, counter, made, shown, hook], steps)
  return hook


def test_the_end_of_training_writes_a_png(tmp_path, set_timing):
  hook = train(tmp_path / "job.png", set_timing)
  assert (tmp_path / "job.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
  assert hook.losses == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]
  assert [(one.own, one.step, one.examples) for one in hook.points] == [
    (0, 0, 0.0), (1, 1, 16.0), (2, 2, 32.0), (3, 3, 48.0), (4, 4, 64.0)]


def test_an_image_that_cannot_be_written_ends_nothing(tmp_path, caplog, monkeypatch, set_timing):
  monkeypatch.setattr(summary_image._log, "propagate", True)
  train(tmp_path / "gone" / "job.png", set_timing)
  assert "no image could be written into %s" % (tmp_path / "gone" / "job.png") in caplog.text


@pytest.mark.parametrize("name, text", [
  ("gone/job.png", "the directory .*gone is not there, or cannot be written"),
  ("folder.png", "folder.png is a directory")])
def test_a_path_that_cannot_be_written_is_refused(tmp_path, name, text):
  (tmp_path / "folder.png").mkdir()
  with pytest.raises(image_path.SummaryImageError, match=text):
    image_path.check_summary_image(str(tmp_path / name))
  image_path.check_summary_image(str(tmp_path / "job.png"))
  image_path.check_summary_image(None)
