"""Jobs whose values and gradients travel packed, narrow and ahead."""
from __future__ import annotations

import re

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_job
from tests.training.job import Job, codes, find
from tf1ps.cluster.description import Task
from tf1ps.session import signature
from tf1ps.training.options import Options, check_options, shared_by_workers


@pytest.mark.slow
def test_a_checkpoint_does_not_know_how_values_travelled(start, tmp_path, monkeypatch):
  saved = []
  for steps, flags, pack_bytes in (
      (40, [], ""), (80, [], "0"), (120, ["--sync_replicas"], ""),
      (160, ["--sync_replicas", "--wire_dtype=bfloat16"], "0")):
    monkeypatch.setenv("TF1PS_PACK_BYTES", pack_bytes)
    job = Job(start, flags=["--optimizer=momentum", "--checkpoint_dir=%s" % tmp_path, *flags])
    (ps,), workers = job.all("--steps=%d" % steps)
    assert codes(*workers, ps) == [0, 0, 0], workers[0].output
    # Asynchronous: who was held up while the other one made most of the 40 steps may make those
    # until it looks again, an eighth of them (stopping.StopAtStep), and one more for the other.
    above = find(workers[0], r"global step (\d+) in ")[0] - steps
    assert above == 0 if "--sync_replicas" in flags else 0 <= above <= 40 // 8 + 1
    saved.append(tf.train.list_variables(tf.train.latest_checkpoint(str(tmp_path))))
  assert saved.count(saved[0]) == 4
  names = [name for name, _ in saved[0] if not name.startswith("tf1ps/")]
  assert names == ["b", "b/Momentum", "global_step", "w", "w/Momentum"]


def sent_by(**options):
  """Trains three steps; returns bytes and messages per step, down and then up."""
  text = local_job.train(steps=3, **options).traffic
  return [int(number) for number in re.match(
    r"sent per step: (\d+) bytes and (\d+) messages? down, (\d+) bytes and (\d+) up",
    text).groups()]


@pytest.mark.slow
def test_small_variables_are_one_message():
  """Of w and b; nothing else of a step comes down but that the update is done."""
  each, packed = sent_by(pack_bytes=0), sent_by(pack_bytes=65536)
  assert each[0] == packed[0] and each[2] == packed[2]
  assert each[1] - packed[1] == 1 and each[3] - packed[3] == 1


@pytest.mark.slow
@pytest.mark.parametrize("sync_replicas", [False, True])
def test_gradients_by_int8_are_as_many_messages(sync_replicas):
  wide, narrow = [sent_by(wire_dtype=wire_dtype, sync_replicas=sync_replicas)
                  for wire_dtype in ("float32", "int8")]
  assert narrow[:2] == wide[:2]  # values are float32 in both
  # w and b are scalars: each is 4 bytes, or 1 and 4 of its scale.
  assert narrow[2] - wide[2] == 2 and narrow[3] == wide[3]


@pytest.mark.slow
@pytest.mark.parametrize("sync_replicas", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_float16_cannot_hold_ends_the_job_with_a_sentence(sync_replicas):
  with pytest.raises(tf.errors.InvalidArgumentError) as caught:
    local_job.train(steps=100, wire_dtype="float16", optimizer="sgd", learning_rate=1000.0,
                    sync_replicas=sync_replicas)
  assert re.search(r"float16 overflow: [12] values of .*the largest float16; the first is "
                   r".*Send bfloat16 \(--wire_dtype", str(caught.value))


@pytest.mark.slow
def test_prefetched_values_are_one_update_old():
  outcome = local_job.train(overlap="prefetch", optimizer="sgd", learning_rate=0.1, steps=300)
  assert outcome.steps == 300
  mean, highest = re.match(r"staleness ([\d.]+) \((\d+) at most\)", outcome.staleness).groups()
  assert 0.5 < float(mean) <= 1.0 and highest == "1"
  assert outcome.evaluation.metrics["loss"] < 0.01


def test_synchronous_workers_pack_alike():
  task, chief = Task("worker", 1, "a:1"), "/job:worker/task:0"
  with tf.Graph().as_default():
    mine, chiefs = [
      signature.signature(task, shared_by_workers(
        Options(steps=1, sync_replicas=True, pack_bytes=size))) for size in (0, 65536)]
  with pytest.raises(signature.GraphMismatchError, match=(
      r"TF1PS_PACK_BYTES=0,? .*but the chief, %s, with .*TF1PS_PACK_BYTES=65536" % chief)):
    signature.compare(mine, chiefs, task.name, chief)


@pytest.mark.parametrize("options, text", [
  (dict(sync_replicas=True), "applies to asynchronous updates"),
  (dict(steps_per_execution=2), "cannot go with --overlap=prefetch"),
  (dict(shard="dynamic"), "cannot go with --shard=dynamic")])
def test_prefetch_is_refused_with_what_it_cannot_be(options, text):
  with pytest.raises(ValueError, match=text):
    check_options(Options(steps=1, overlap="prefetch", **options))
