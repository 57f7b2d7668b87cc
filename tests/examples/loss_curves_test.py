"""The judgement and the picture of loss curves."""
from __future__ import annotations

import re

import numpy as np
import pytest

from tests.examples import docstrings, importing


@pytest.fixture(scope="module")
def example():
  return importing.load("notes/loss_curves")


def test_a_curve_that_falls_in_a_line_has_no_spread_and_no_rises(example):
  assert example.judge(np.linspace(2, 1, 40)) == pytest.approx((0, 0), abs=1e-12)


def test_the_rises_of_a_curve_and_its_spread_around_the_mean_of_five(example):
  losses = np.array([1.0, 0.0] * 20)
  spread, rises = example.judge(losses)
  # The mean of 1, 0, 1, 0, 1 is 0.6, and that of 0, 1, 0, 1, 0 is 0.4.
  assert rises == 19 and spread == pytest.approx(0.4)


def test_the_loss_is_the_cross_entropy(example):
  data = example.handwritten_digits.Digits(np.ones([3, 2], np.float32), np.array([0, 1, 2]))
  assert example.loss_of(data, np.zeros([2, 4]), np.zeros([4, 10])) == pytest.approx(np.log(10))


def test_a_picture_is_drawn(example, tmp_path):
  pytest.importorskip("matplotlib")
  line = np.linspace(1, 0.1, 10)
  example.draw(str(tmp_path / "a.png"), {
    scheme: example.Curve(1000 * line, line, line) for scheme in example.SCHEMES}, 0.05)
  assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.any_tensorflow
def test_the_pictures_that_docstrings_name_are_there():
  named = {name for found in docstrings.find()
           for name in re.findall(r"\bdocs/pictures/\w+\.png\b", found.docstring)}
  assert named == {"docs/pictures/loss_curves.png"}
  for name in named:
    assert (docstrings.ROOT / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
