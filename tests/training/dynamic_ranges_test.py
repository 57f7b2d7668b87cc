"""Jobs whose workers lease ranges of the data: who trains on what, with kills and restarts."""
from __future__ import annotations

import collections
import glob
import pathlib
import signal
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import local_job
from tests.training.job import Job, codes, find, last_line

PROGRAM = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "ranged.py")
LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples"
        r"(?:, staleness [\d.]+ \(\d+ at most\))?, [\d.]+ s, (.*), exit code (\d)")
DONE = "all ranges of the data are done, --epochs=%d times"


def trained_on(tmp_path, index="*"):
  """How often each number was trained on, as far as the workers have written it down."""
  found = collections.Counter()
  for name in glob.glob(str(tmp_path / ("trained.%s.*" % index))):
    with open(name) as file:
      # A worker that is killed may leave half a line.
      found.update(int(line) for line in file if line.endswith("\n"))
  return found


def make_job(start, tmp_path, *flags, **kwargs):
  flags = [PROGRAM, "--shard=dynamic", "--batch_size=10", "--trained=%s" % (tmp_path / "trained"),
           *flags]
  return Job(start, flags=flags, **kwargs)


def train_all_twice(start, tmp_path, numbers, *flags):
  """Two workers, one of them slow, train on each of the numbers twice; returns the workers."""
  job = make_job(start, tmp_path, "--epochs=2", "--pauses=0,0.02", *flags)
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST) for worker in workers]
  assert [end[2] for end in ends] == [DONE % 2] * 2
  assert sum(end[1] for end in ends) == 2 * len(numbers)
  assert trained_on(tmp_path) == {number: 2 for number in numbers}
  return workers


@pytest.fixture
def files(tmp_path):
  """Twelve files of 5 to 60 numbers; the flag that names them, and the numbers."""
  folder = tmp_path / "files"
  folder.mkdir()
  numbers = iter(range(1000))
  total = 0
  for index in range(12):
    count = 5 * (index + 1)
    total += count
    (folder / ("%02d.txt" % index)).write_text(
      "".join("%d\n" % next(numbers) for _ in range(count)))
  return "--folder=%s" % folder, range(total)


@pytest.mark.parametrize("flags", [
  [], pytest.param(["--shuffled=50"], marks=pytest.mark.slow)])
def test_blocks_are_shared_by_workers_of_different_speed(start, tmp_path, flags):
  job = make_job(start, tmp_path, "--epochs=2", "--records=805", "--pauses=0,0.05", *flags)
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST) for worker in workers]
  assert [end[2] for end in ends] == [DONE % 2] * 2
  assert sum(end[1] for end in ends) == 2 * 805
  assert ends[0][1] > 2 * ends[1][1] > 0
  assert trained_on(tmp_path) == {number: 2 for number in range(805)}
  assert find(workers[0], r"trained on more than once: (\d+)") == [0]


@pytest.mark.slow
def test_files_whose_order_may_have_changed_are_done_with_their_epoch(start, tmp_path, files):
  flag, numbers = files
  job = make_job(start, tmp_path, "--epochs=3", "--source=files", "--shuffled=100", flag)
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  assert trained_on(tmp_path) == {number: 3 for number in numbers}
  workers[0].wait_for("So all ranges of an epoch are done at the end of its pass")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--shuffled=100"]])
def test_sixty_four_files_three_workers_and_one_that_is_killed(start, tmp_path, flags):
  """All records are trained on; again only what the killed worker held: two files at most."""
  folder = tmp_path / "files"
  folder.mkdir()
  for index in range(64):
    (folder / ("%02d.txt" % index)).write_text(
      "".join("%d\n" % number for number in range(40 * index, 40 * index + 40)))
  job = make_job(start, tmp_path, "--epochs=1", "--source=datasets", "--folder=%s" % folder,
                 "--pauses=0.05,0.02,0.005", *flags, num_workers=3)
  (ps,), workers = job.all()
  harness.wait_until(lambda: len(trained_on(tmp_path, 1)) >= 150, what="steps of worker 1")
  workers[1].kill()
  workers[1] = job.worker(1)
  assert codes(*workers, ps) == [0] * 4, workers[0].output
  found = trained_on(tmp_path)
  assert set(found) == set(range(64 * 40))
  again = sum(found.values()) - 64 * 40
  held = 40 * (2 if not flags else 6)  # what is shuffled comes from more files
  assert 0 <= again <= held
  assert max(found.values()) <= 2
  (told,) = find(workers[0], r"trained on more than once: (\d+)")
  assert told <= again
  ends = [last_line(worker, LAST)[1] for worker in (workers[0], workers[2])]
  assert ends[1] > ends[0]


@pytest.mark.slow
def test_what_a_killed_worker_held_comes_back(start, tmp_path):
  """Eighty records are a block: at most so many, and one block read ahead, are trained on again."""
  job = make_job(start, tmp_path, "--epochs=1", "--records=2400", "--pauses=0.02,0.05,0.03",
                 num_workers=3)
  (ps,), workers = job.all()
  harness.wait_until(lambda: len(trained_on(tmp_path, 1)) >= 120, what="steps of worker 1")
  workers[1].kill()
  workers[1] = job.worker(1)
  assert codes(*workers, ps) == [0] * 4, workers[0].output
  found = trained_on(tmp_path)
  assert set(found) == set(range(2400))
  twice = sum(found.values()) - 2400
  assert 0 < twice <= 160
  (again,) = find(workers[0], r"trained on more than once: (\d+)")
  assert 0 <= again <= twice


@pytest.mark.slow
def test_what_a_lost_worker_held_is_trained_on_by_the_others(start, tmp_path):
  job = make_job(start, tmp_path, "--epochs=1", "--records=800", "--pauses=0.01,0.01,30",
                 num_workers=3, heartbeat_timeout=5.0)
  (ps,), workers = job.all()
  harness.wait_until(lambda: trained_on(tmp_path, 2), what="a step of worker 2")
  workers[2].kill()
  assert codes(*workers[:2]) == [1, 0], workers[0].output
  assert "/job:worker/task:2 left or is lost. " in workers[0].output + workers[1].output
  assert set(trained_on(tmp_path)) == set(range(800))
  assert ps.wait() in (0, 1)


@pytest.mark.slow
def test_the_checkpoint_knows_what_is_done(tmp_path, files):
  flag, numbers = files
  folder, seen = flag.partition("=")[2], collections.Counter()
  for epochs, own in ((1, len(numbers)), (1, 0), (3, 2 * len(numbers))):
    outcome = local_job.train(
      lambda mode, shard: noted(mode, seen, tf.data.TextLineDataset(shard.files(folder + "/*.txt")),
                                shard),
      epochs=epochs, shard="dynamic", batch_size=10, checkpoint_dir=str(tmp_path / "model"))
    assert (outcome.examples, outcome.reason) == (own, DONE % epochs)
  assert seen == {number: 3 for number in numbers}


def noted(mode, seen, records, shard):
  """The numbers of a dataset, shared out; those of the training are counted in `seen`."""
  def note(batch):
    seen.update(int(number) for number in batch)
    return np.float32(batch) / 1000

  rows = (shard.dataset(records) if mode == "train" else tf.data.Dataset.range(10)).batch(
    shard.batch_size)
  batch = tf.data.make_initializable_iterator(rows).get_next()
  if mode == "train":
    batch = tf.numpy_function(note, [batch], tf.float32)
    batch.set_shape([None])
  batch = tf.cast(batch, tf.float32)
  return batch, batch


@pytest.mark.slow
def test_the_last_checkpoint_knows_of_the_last_step(tmp_path):
  for own in (400, 0):
    outcome = local_job.train(
      lambda mode, shard: noted(mode, collections.Counter(), tf.data.Dataset.range(400), shard),
      epochs=1, shard="dynamic", batch_size=10, save_checkpoints="steps:1",
      checkpoint_dir=str(tmp_path / "model"))
    assert outcome.examples == own


@pytest.mark.slow
def test_a_chief_that_waits_for_others_saves_after_a_signal(start, tmp_path):
  job = make_job(start, tmp_path, "--epochs=1", "--records=4000", "--pauses=0.01,300",
                 "--checkpoint_dir=%s" % (tmp_path / "model"))
  (ps,), (chief, other) = job.all()
  harness.wait_until(lambda: trained_on(tmp_path, 1), what="a step of the other worker")
  seen = {"trained": 0, "at": time.monotonic()}

  def chief_waits():
    trained = len(trained_on(tmp_path))
    if trained != seen["trained"]:
      seen.update(trained=trained, at=time.monotonic())
    return trained >= 3850 and time.monotonic() - seen["at"] > 1.5

  harness.wait_until(chief_waits, what="the end of the chief's ranges")
  chief.signal(signal.SIGTERM)
  assert chief.wait() == 143, chief.output
  steps = find(chief, r"saved .*model.ckpt-(\d+) ")
  assert steps[0] >= 380
  for task in (ps, other):
    task.kill()


@pytest.mark.slow
def test_who_has_done_its_part_leaves_its_ranges_to_the_others(start, tmp_path):
  job = make_job(
    start, tmp_path, "--epochs=1", "--records=700", "--examples=1000", "--pauses=0.005,0.2")
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  ends = [last_line(worker, LAST)[1:3] for worker in workers]
  assert ends[0] == [500, "trained on its part of --examples=1000"]
  # The chief ends in the middle of a block: what it had trained on of that comes again.
  assert 200 < ends[1][0] < 200 + 80 and ends[1][1] == DONE % 1
  assert set(trained_on(tmp_path)) == set(range(700))


@pytest.mark.slow
def test_after_a_restart_of_the_ps_what_came_after_the_checkpoint_is_handed_out_again(
    start, tmp_path):
  job = make_job(start, tmp_path, "--epochs=1", "--records=1600", "--pauses=0.02",
                 "--save_checkpoints=steps:20", "--checkpoint_dir=%s" % (tmp_path / "model"))
  (ps,), workers = job.all()
  harness.wait_until(lambda: workers[0].output.count("saved ") >= 4, what="checkpoints")
  ps.kill()
  ps = job.ps()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  found = trained_on(tmp_path)
  assert set(found) == set(range(1600))
  # A checkpoint every 20 steps; two blocks that each worker held; what came until the kill.
  assert sum(found.values()) - 1600 < 800
  (reached,) = find(workers[0], r"global step (\d+) in ")
  assert reached >= 160


@pytest.mark.slow
def test_synchronous_workers_leave_when_nothing_is_left(start, tmp_path):
  job = make_job(start, tmp_path, "--epochs=1", "--records=830", "--sync_replicas",
                 "--on_uneven=shrink")
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output
  assert trained_on(tmp_path) == {number: 1 for number in range(830)}


def test_an_iterator_that_cannot_begin_again_is_refused():
  def input_fn(mode, shard):
    rows = shard.dataset(tf.data.Dataset.range(100)).batch(shard.batch_size)
    batch = tf.cast(tf.data.make_one_shot_iterator(rows).get_next(), tf.float32)
    return batch, batch

  with pytest.raises(ValueError, match=(
      "Replace make_one_shot_iterator by tf.data.make_initializable_iterator")):
    local_job.train(input_fn, epochs=1, shard="dynamic")
