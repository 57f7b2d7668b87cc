"""The examples before a run: in the chief's file, and in its heartbeats for the other workers."""
from __future__ import annotations

import json

import pytest

from tests.training import local_server
from tf1ps.checkpoint import global_step
from tf1ps.session.membership import Membership
from tf1ps.training import options, trained_examples
from tf1ps.training.counts import Counts

SUFFIX = trained_examples.SUFFIX


@pytest.fixture
def run(request):
  return Membership(local_server.record(request.node.name.partition("[")[0]))


def make(run, own=0, before=0, **flags):
  """Returns the hook, and the ledger with these examples."""
  counts = Counts(global_step.GlobalStepTracker())
  counts.examples, counts.examples_before = own, before
  return trained_examples.TrainedExamples(run, options.Options(**flags), counts), counts


def test_the_file_has_the_examples_of_all_workers_of_this_run(run):
  run.run.id = "now"
  other = local_server.Worker(run.record, 1)
  other.say(run="now", examples=30)
  local_server.Worker(run.record, 2).say(run="before", examples=1000)
  run.heartbeat.beat()
  hook, _ = make(run, own=12, before=100)
  assert json.loads(hook.texts_beside_checkpoint()[SUFFIX]) == {
    "run": "now", "before": 100, "examples": 42}


@pytest.mark.parametrize("text, before", [
  ('{"run": "another", "before": 100, "examples": 42}', 142),
  ('{"run": "now", "before": 100, "examples": 42}', 130),  # worker 1 counts 12 of them, on
  ("", 7), ("[]", 7), (None, 7)])
def test_a_run_begins_with_those_of_the_runs_before(run, tmp_path, text, before):
  run.run.id = "now"
  checkpoint = tmp_path / "model.ckpt-5"
  (tmp_path / "model.ckpt-3.index").write_text("")
  (tmp_path / ("model.ckpt-3" + SUFFIX)).write_text(
    '{"run": "before", "before": 3, "examples": 4}')
  local_server.Worker(run.record, 1).say(run="now", examples=12)
  run.heartbeat.beat()
  run.heartbeat.previous = None  # the ps has lost what the chief said before
  if text is not None:
    (tmp_path / ("model.ckpt-5" + SUFFIX)).write_text(text)
  hook, counts = make(run, examples=500)
  hook.on_state_begun(None, str(checkpoint))
  hook.on_session_opened(None)
  assert counts.examples_before == before == run.heartbeat.get("job_examples")
  checkpoint.with_name("model.ckpt-5" + SUFFIX).write_text(
    '{"run": "now", "before": 7, "examples": 1}')
  hook.on_session_opened(None)  # a recovery
  assert counts.examples_before == before


def test_the_workers_of_a_run_count_on_where_the_ps_has_kept_their_numbers(run, tmp_path):
  run.run.id = "now"
  (tmp_path / ("model.ckpt-5" + SUFFIX)).write_text(
    '{"run": "now", "before": 100, "examples": 42}')
  run.heartbeat.previous = run.heartbeat.own()
  hook, counts = make(run, examples=500)
  hook.on_state_begun(None, str(tmp_path / "model.ckpt-5"))
  hook.on_session_opened(None)
  assert counts.examples_before == 100
