from __future__ import annotations

import json

import pytest

from tf1ps.state import run_status

OLD = {"run": "a", "state": "failed", "global_step": 3, "time": 1.0, "reason": "ended by signal 15"}


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("change, was_stopped", [
  ({}, True), ({"reason": "no data"}, False), ({"state": "running"}, False),
  ({"state": "ended", "reason": ""}, False)])
def test_a_run_that_a_signal_has_ended_was_stopped(change, was_stopped):
  found = run_status.parse_run_status(json.dumps(dict(OLD, **change)))
  assert (found.global_step, found.address, found.was_stopped) == (3, "", was_stopped)
