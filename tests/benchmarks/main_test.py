"""One comparison as a whole; `make bench-quick` runs one of every kind."""
from __future__ import annotations

import os
import re
import signal

import pytest

from benchmarks import __main__ as main
from benchmarks import rows
from tests.benchmarks import running


@pytest.mark.parametrize("arguments, text", [
  (["latency"], "there is no benchmark latency: latency_S"),
  (["--rounds=0"], "--rounds and --seeds must be at least 1"),
  (["--seconds=0"], "--seconds must be above 0"),
  (["--seconds=30"], "--seconds and --settle together must be at most 30"),
  (["--json=none/rows.jsonl"], "none is no folder that can be written to"),
  (["--chart=none/chart.png"], "none is no folder that can be written to"),
  (["--chart=chart.jpg"], "--chart=chart.jpg: its name must end in .png"),
  (["--mnist=none"], "--mnist=none is no folder"),
  (["latency_S", "--only=lazy Adam"], "no system of these benchmarks has it in its name")])
def test_what_cannot_be_done_is_refused_before_hours_of_work(arguments, text, tmp_path, monkeypatch,
                                                             capsys):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(SystemExit):
    main.parse(arguments)
  assert text in " ".join(capsys.readouterr().err.split())


def test_a_second_signal_is_not_heard():
  before = signal.signal(signal.SIGTERM, main.leave)
  try:
    with pytest.raises(SystemExit) as ended:
      os.kill(os.getpid(), signal.SIGTERM)
      signal.pause()
    os.kill(os.getpid(), signal.SIGTERM)  # the jobs are being ended
  finally:
    signal.signal(signal.SIGTERM, before)
  assert ended.value.code == 128 + signal.SIGTERM


def test_the_defaults_are_told(capsys):
  with pytest.raises(SystemExit):
    main.parse(["--help"])
  assert "turns of each system (default: 5)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("arguments", [
  ["sparse_E", "--only=lazy Adam"], ["--only=lazy Adam"], ["mnist_97", "--only=2 workers, sync"]])
def test_only_chooses_among_the_systems_of_the_benchmarks(arguments):
  args = main.parse(arguments)
  assert args.names + ["--only=" + args.only] == arguments


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_lines_that_learn_the_same_are_compared_with_the_classic_script(tmp_path):
  path = str(tmp_path / "rows.jsonl")
  printed = running.run(
    "benchmarks", "manyvars_L", "--quick", "--only=nothing packed", "--json=" + path)
  classic, packed = rows.read(path)
  assert rows.incomplete([classic, packed]) == []
  assert [classic["system"], packed["system"]] == ["classic", "tf1ps, nothing packed"]
  assert classic["ratio_to_classic"] == 1 and packed["minibatches"] == 16
  assert packed["eval_loss"] == pytest.approx(classic["eval_loss"], abs=1e-6)
  # 10 matrices of 16x16 floats come and go with each step.
  assert min(classic["bytes_per_step"], packed["bytes_per_step"]) > 2 * 10 * 1024
  assert re.search(r"^\| V10 \| loopback \| classic \| `--variables=ref` \|", printed, re.MULTILINE)
  assert "no figure means anything" in printed
