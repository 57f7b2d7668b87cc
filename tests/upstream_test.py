"""TensorFlow's own faults, by the programs of tests/upstream: a change in a new version fails here.

After a look at the change, `python -m tests.upstream --write` notes it.
"""
from __future__ import annotations

import json
import pathlib

import pytest

from tests.upstream import __main__ as upstream

RESULTS = json.loads(upstream.RESULTS.read_text())


@pytest.fixture(scope="module")
def version():
  return upstream.noted(RESULTS, upstream.version())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(upstream.programs()))
def test_tensorflow_shows_what_is_noted(name, version):
  assert upstream.run(name) == RESULTS[name][version]


def test_each_program_says_what_would_be_right():
  for fault in upstream.programs().values():
    assert fault.what and fault.expected, fault.name
  assert set(RESULTS) == set(upstream.programs())


def test_the_notes_of_the_newest_version_before_count():
  results = {"a": {"1.15": "x", "2.9": "y", "2.16": "z"}}
  assert [upstream.noted(results, each) for each in ("1.15", "2.10", "2.16", "2.30")] == [
    "1.15", "2.9", "2.16", "2.16"]


def test_a_program_that_hangs_or_dies_is_told_from_one_that_ends(tmp_path, monkeypatch):
  monkeypatch.setattr(upstream, "HERE", tmp_path)
  monkeypatch.setattr(upstream, "LIMIT", 0.5)
  for name, code in dict(
      hangs="import threading; threading.Event().wait()",
      dies="import os; os.kill(os.getpid(), 11)",
      ends="raise SystemExit(3)", says="print('seen: it')").items():
    (tmp_path / (name + ".py")).write_text("print('ready', flush=True)\n" + code)
  assert {name: upstream.run(name) for name in ("hangs", "dies", "ends", "says")} == {
    "hangs": "hangs", "dies": "the process dies by SIGSEGV", "ends": "the process ends with 3",
    "says": "it"}


def test_the_page_has_the_notes():
  root = pathlib.Path(__file__).resolve().parents[1]
  assert (root / "tests" / "upstream" / "README.md").read_text() == upstream.page()
