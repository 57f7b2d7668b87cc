"""The examples before a run: in the chief's file, and in its heartbeats for the other workers."""
from __future__ import annotations

import json
import types

import pytest

from tests.training import local_server
from tf1ps.session.membership import Membership
from tf1ps.training import options, trained_examples

SUFFIX = trained_examples.SUFFIX


@pytest.fixture
def run(request):
  return Membership(local_server.record(request.node.name.partition("[")[0]))


def make(run, own=0, **flags):
  counter = types.SimpleNamespace(examples=own)
  return trained_examples.TrainedExamples(run, options.Options(**flags), counter)


def test_the_file_has_the_examples_of_all_workers_of_this_run(run):
  run.run_id = "now"
  other = local_server.Worker(run.record, 1)
  other.say(run="now", examples=30)
  local_server.Worker(run.record, 2).say(run="before", examples=1000)
  run.heartbeat.beat()
  hook = make(run, own=12)
  hook.before = 100
  assert json.loads(hook.texts_beside_checkpoint()[SUFFIX]) == {
    "run": "now", "before": 100, "examples": 42}


@pytest.mark.parametrize("text, before", [
  ('{"run": "another", "before": 100, "examples": 42}', 142),
  ('{"run": "now", "before": 100, "examples": 42}', 100),  # the workers count on
  ("", 0), ("[]", 0), (None, 0)])
def test_a_run_begins_with_those_of_the_runs_before(run, tmp_path, text, before):
  run.run_id = "now"
  checkpoint = tmp_path / "model.ckpt-5"
  if text is not None:
    (tmp_path / ("model.ckpt-5" + SUFFIX)).write_text(text)
  hook = make(run, examples=500)
  hook.on_state_begun(None, str(checkpoint))
  hook.on_session_opened(None)
  assert hook.before == before == run.heartbeat.get("job_examples")
  checkpoint.with_name("model.ckpt-5" + SUFFIX).write_text(
    '{"run": "now", "before": 7, "examples": 1}')
  hook.on_session_opened(None)  # a recovery
  assert hook.before == before
