from __future__ import annotations

import datetime
import io
import json
import logging
import subprocess
import sys

import pytest

from tf1ps.compat import json_lines


def test_a_line_has_the_time_by_rfc_3339():
  record = json.loads(json_lines.json_line("Grüße\n2", "worker 1", "ERROR", step=3))
  assert list(record) == ["time", "severity", "task", "message", "step"]
  time = datetime.datetime.strptime(record.pop("time"), "%Y-%m-%dT%H:%M:%S.%fZ")
  assert abs((datetime.datetime.utcnow() - time).total_seconds()) < 60
  assert record == {"severity": "ERROR", "task": "worker 1", "message": "Grüße\n2", "step": 3}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_json_lacks_is_null(value):
  assert json.loads(json_lines.json_line("", "", loss=value), parse_constant=pytest.fail)[
    "loss"] is None


@pytest.mark.parametrize(
  "line", ["text", "{}", '{"time": "', '{"time": "now"}', '{"message": "a"}'])
def test_another_line_is_none_of_ours(line):
  assert json_lines.read_json_line(line) is None


def test_a_line_of_ours_is_read():
  line = json_lines.json_line("a", "ps 0", step=1)
  assert json_lines.read_json_line(line)["step"] == 1


@pytest.mark.parametrize("line, severity", [
  ("W0000 00:00:1795576836.184433    4006 port.cc:153] text", "WARNING"),
  ("2026-11-25 03:20:47.187166: E tensorflow/core/platform/env.cc:1] text", "ERROR"),
  ("F1125 03:20:47.187166 140 text", "CRITICAL"), ("WARNING:tensorflow:text", "WARNING"),
  ("Epoch 3", "INFO"), ("I am a text", "INFO"), ("Error: text", "INFO")])
def test_the_severity_of_a_line(line, severity):
  assert json_lines.severity_of(line) == severity


def records(text):
  return [{name: value for name, value in json.loads(line).items() if name != "time"}
          for line in text.splitlines()]


def test_a_stream_makes_an_object_of_each_line():
  out = io.StringIO()
  stream = json_lines.JsonStream(out, "worker 0")
  stream.write("a\n10%\r20%\nhal")
  assert [one["message"] for one in records(out.getvalue())] == ["a", "20%"]
  stream.write("f\n\n")
  stream.write("no end")
  stream.flush()
  stream.log("progress: step 1", step=1)
  assert records(out.getvalue())[2:] == [
    {"severity": "INFO", "task": "worker 0", "message": "half"},
    {"severity": "INFO", "task": "worker 0", "message": "no end"},
    {"severity": "INFO", "task": "worker 0", "message": "progress: step 1", "step": 1}]
  assert not stream.isatty()


PROGRAM = """
import logging, subprocess, sys
from tf1ps.compat import guard_streams, rename_json_lines, use_json_lines
guard_streams()
log = logging.getLogger("tf1ps")
log.addHandler(logging.StreamHandler(sys.stdout))
log.setLevel(logging.INFO)
use_json_lines("worker 2")
use_json_lines("twice")
guard_streams()
print("printed")
log.warning("a %s", "warning")
try:
  raise ValueError("no")
except ValueError:
  log.exception("it failed")
rename_json_lines("worker 3")
log.warning("renamed")
print("here, too")
sys.stderr.write("wrong\\n")
sys.stdout.buffer.write(b"bytes\\n")
subprocess.run(["echo", "by a process"], stdout=sys.stdout)
"""


def test_all_output_of_python_is_json():
  done = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE, universal_newlines=True, check=True)
  *lines, by_bytes, by_process = done.stdout.splitlines()
  printed, warning, failed, *renamed = records("\n".join(lines))
  assert (by_bytes, by_process) == ("bytes", "by a process")
  assert printed == {"severity": "INFO", "task": "worker 2", "message": "printed"}
  assert warning == {"severity": "WARNING", "task": "worker 2", "message": "a warning"}
  assert failed["severity"] == "ERROR" and failed["message"].startswith("it failed\nTraceback")
  assert [(one["task"], one["message"]) for one in renamed] == [
    ("worker 3", "renamed"), ("worker 3", "here, too")]
  assert records(done.stderr) == [{"severity": "ERROR", "task": "worker 3", "message": "wrong"}]
  assert not isinstance(sys.stdout, json_lines.JsonStream) and not [
    handler for handler in logging.getLogger("tf1ps").handlers
    if isinstance(handler.formatter, json_lines._Formatter)]
