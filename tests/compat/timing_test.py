import os
import subprocess
import sys

import pytest

from tf1ps.compat import timing
from tf1ps.compat.timing import TIMING, Timing


def test_the_environment_overrides_defaults():
  assert timing.read({}) == Timing()
  assert timing.read({"TF1PS_TIMING": ""}) == Timing()
  read = timing.read({"TF1PS_TIMING": '{"linger": 0.25, "poll_interval": 2}'})
  assert read == Timing(linger=0.25, poll_interval=2)
  assert read.heartbeat_interval == 1.0


@pytest.mark.parametrize("text, message", [
  ("{", "TF1PS_TIMING is not a JSON object"),
  ("[1]", r'must be a JSON object such as {"linger": 0.1}, got \[1\]'),
  ('{"lingre": 1}', r"has no field 'lingre'. The fields are .*, alive_within, .*, linger, "),
  ('{"linger": -1}', "linger must be a number of seconds from 0 on, got -1"),
  ('{"linger": "1"}', "linger must be a number of seconds from 0 on, got '1'"),
  ('{"linger": true}', "linger must be a number of seconds from 0 on, got True"),
  ('{"linger": NaN}', "linger must be a number of seconds from 0 on, got nan"),
  ('{"linger": Infinity}', "linger must be a number of seconds from 0 on, got inf"),
])
def test_what_is_no_timing_is_refused(text, message):
  with pytest.raises(timing.TimingError, match=message):
    timing.read({"TF1PS_TIMING": text})


def test_the_environment_sets_the_limit_of_the_start():
  assert timing.read_start_timeout({}) == 60.0
  assert timing.read_start_timeout({"TF1PS_START_TIMEOUT": "900"}) == 900.0
  for text in ("soon", "0", "-1", "inf", "nan"):
    with pytest.raises(timing.TimingError, match="must be a positive number of seconds, got"):
      timing.read_start_timeout({"TF1PS_START_TIMEOUT": text})


def test_this_process_and_those_that_it_starts_have_the_timing_of_the_environment():
  assert TIMING == timing.read(os.environ)
  assert TIMING.heartbeat_interval < Timing().heartbeat_interval  # see conftest.py
  code = ("import sys; from tf1ps.launch import fork_server; "
          "print(fork_server.TIMING.fork_limit, 'tensorflow' in sys.modules)")
  said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60,
                        env=dict(os.environ, TF1PS_TIMING='{"fork_limit": 12}'), check=True)
  assert said.stdout.split() == [b"12", b"False"]


def test_a_wait_looks_often_at_first(monkeypatch):
  monkeypatch.setattr(timing, "TIMING", Timing())
  assert [timing.poll_pause(waited) for waited in (0.0, 0.3, 60.0)] == [
    0.05, pytest.approx(0.1), 0.25]


def test_a_silent_task_is_lost_only_after_several_heartbeats():
  for one in (TIMING, Timing()):
    assert one.steady_beats >= 4
    assert one.alive_within >= 5 * one.heartbeat_interval
    assert one.generator_end_limit < one.runner_end_limit < one.runner_threads_end_limit
    assert one.leave_limit + one.watch_probe_limit < one.force_exit_limit
    assert one.fork_server_kill_limit < one.fork_server_end_limit
