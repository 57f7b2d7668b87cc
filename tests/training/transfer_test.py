"""Jobs whose values and gradients travel packed, narrow and ahead, as a user starts them."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training.job import Job, codes, find, last_line

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples, (?:staleness ([\d.]+) \((\d+) at "
        r"most\), )?.*, exit code (\d)")


@pytest.mark.slow
def test_a_checkpoint_does_not_know_how_values_travelled(start, tmp_path):
  saved = []
  for steps, flags in ((40, []), (80, ["--pack_bytes=0"]), (120, ["--sync_replicas"]),
                       (160, ["--sync_replicas", "--pack_bytes=0", "--wire_dtype=bfloat16"])):
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


def test_small_variables_are_one_message(start):
  """Of w and b; nothing else of a step comes down but that the update is done."""
  sent = {}
  for packs in (0, 65536):
    job = Job(start, num_workers=1, flags=["--pack_bytes=%d" % packs])
    (ps,), (worker,) = job.all("--steps=20")
    assert codes(worker, ps) == [0, 0]
    sent[packs] = find(
      worker, r"sent (\d+) bytes and (\d+) messages? a step down, (\d+) bytes and (\d+)")
  assert sent[0][0] == sent[65536][0] and sent[0][2] == sent[65536][2]
  assert sent[0][1] - sent[65536][1] == 1 and sent[0][3] - sent[65536][3] == 1


@pytest.mark.parametrize("update", ["async", "sync"])
def test_gradients_by_int8_are_as_many_messages(start, update):
  sent = {}
  for wire_dtype in "float32", "int8":
    job = Job(start, num_workers=1, flags=[
      "--wire_dtype=" + wire_dtype, "--sync_replicas=%s" % (update == "sync")])
    (ps,), (worker,) = job.all("--steps=20")
    assert codes(worker, ps) == [0, 0], worker.output
    sent[wire_dtype] = find(
      worker, r"sent (\d+) bytes and (\d+) messages? a step down, (\d+) bytes and (\d+)")
  assert sent["int8"][:2] == sent["float32"][:2]  # values are float32 in both
  # w and b are scalars: each is 4 bytes, or 1 and 4 of its scale.
  assert sent["int8"][2] - sent["float32"][2] == 2 and sent["int8"][3] == sent["float32"][3]


@pytest.mark.parametrize("update", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_what_float16_cannot_hold_ends_the_job_with_a_sentence(start, update):
  job = Job(start, num_workers=1, flags=[
    "--wire_dtype=float16", "--optimizer=sgd", "--learning_rate=1000",
    "--sync_replicas=%s" % (update == "sync")])
  (ps,), (worker,) = job.all("--steps=100")
  assert codes(worker, ps)[0] == 1
  text, = find(worker, r"(float16 overflow: [12] values of .*)")
  assert "the largest float16; the first is " in text and "Send bfloat16 (--wire_dtype" in text
  assert "float16 overflow: " in worker.lines[-1]


def test_prefetched_values_are_one_update_old(start):
  job = Job(start, num_workers=1, flags=["--prefetch", "--optimizer=sgd", "--learning_rate=0.1"])
  (ps,), (worker,) = job.all("--steps=300")
  assert codes(worker, ps) == [0, 0], worker.output
  steps, _, mean, highest, _ = last_line(worker, LAST)
  assert steps == 300
  assert 0.5 < float(mean) <= 1.0 and highest == 1
  assert float(find(worker, r"test error ([\d.]+)")[0]) < 0.1


def test_synchronous_workers_pack_alike(start):
  job = Job(start, flags=["--sync_replicas", "--start_timeout=20"])
  ps, chief = job.ps(), job.worker(0, "--steps=100000", "--step_seconds=0.02")
  worker = job.worker(1, "--steps=100000", "--step_seconds=0.02", "--pack_bytes=0")
  assert worker.wait() == 1
  assert "--pack_bytes=0" in worker.lines[-1] and "--pack_bytes=65536" in worker.lines[-1]
  for task in (chief, ps):
    task.kill()


def test_prefetch_is_refused_with_what_it_cannot_be(start):
  for flags, text in ((["--sync_replicas"], "applies to asynchronous updates"),
                      (["--steps_per_execution=2"], "cannot go with --prefetch"),
                      (["--steps_in_flight=2"], "cannot go with --prefetch"),
                      (["--shard=dynamic"], "cannot go with --shard=dynamic")):
    worker = Job(start, num_workers=1, flags=["--prefetch", *flags]).worker(0, "--steps=1")
    assert worker.wait() == 1
    assert text in worker.lines[-1]
