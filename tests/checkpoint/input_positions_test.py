"""Workers that are stopped, and go on in their data where they were."""
from __future__ import annotations

import pathlib
import signal

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.training import job as job_lib
from tests.training import local_job
from tf1ps.checkpoint import checkpoints, input_positions
from tf1ps.pipeline import iterators

PROGRAM = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "positions.py")
BATCH = 4


def job(start, *flags, **kwargs):
  return job_lib.Job(start, flags=[PROGRAM, "--batch_size=%d" % BATCH, *flags], **kwargs)


def saw(task):
  """The first records of the batches that a worker has trained on so far."""
  return [int(line.split()[1]) for line in list(task.lines) if line.startswith("saw ")]


def wait_for_batches(task, count):
  harness.wait_until(lambda: len(saw(task)) >= count, what=lambda: "batches: %s" % task.output)


def check_goes_on(task, before, count, index=0, workers=1):
  """Checks where a worker has gone on, which drew so many batches before it was stopped."""
  number, = job_lib.find(task, r"goes on at batch (\d+) of its data")
  assert 1 < number <= before + 1 and number >= count, (number, before, task.output)
  first = saw(task)[0]
  assert first == index + (number - 1) * BATCH * workers


@pytest.mark.slow
def test_a_worker_alone_comes_back(start):
  # The last step that is counted is the chief's, which is slow: it waits for nobody.
  this = job(start, "--steps=80")
  # The other one makes its 20 steps in a second, in which its position is kept several times.
  slow = ["--step_seconds=0.2", "--step_seconds=0.05"]
  ps, chief, worker = this.ps(), this.worker(0, slow[0]), this.worker(1, slow[1])
  wait_for_batches(worker, 20)
  worker.kill()
  before = len(saw(worker))
  again = this.worker(1)
  assert job_lib.codes(again, chief, ps) == [0, 0, 0], again.output
  check_goes_on(again, before, 10, index=1, workers=2)
  assert "goes on at" not in chief.output


@pytest.mark.slow
def test_the_whole_job_comes_back_from_its_checkpoint(start, tmp_path):
  flags = ["--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:10", "--steps=1000000"]
  this = job(start, *flags)
  (ps,), workers = this.all()
  for worker in workers:
    wait_for_batches(worker, 40)
  for task in [*workers, ps]:
    task.kill()
  before = [len(saw(worker)) for worker in workers]
  step = checkpoints.global_step_of_checkpoint(checkpoints.latest_checkpoint(str(tmp_path)))
  this = job(start, *flags[:2], "--steps=%d" % (step + 60))
  (ps,), workers = this.all()
  assert job_lib.codes(*workers, ps) == [0, 0, 0]
  for index, worker in enumerate(workers):
    check_goes_on(worker, before[index], 5, index, 2)
  # With another number of workers their data are other ones.
  this = job(start, *flags[:2], "--steps=%d" % (step + 70), num_workers=1)
  ps, chief = this.ps(), this.worker()
  assert job_lib.codes(chief, ps) == [0, 0]
  assert "starts from the beginning of its data instead of batch" in chief.output
  assert "workers was 2 and is 1" in chief.output and saw(chief)[0] == 0


@pytest.mark.slow
def test_after_a_signal_and_a_checkpoint_nothing_is_trained_twice(start, tmp_path):
  flags = ["--checkpoint_dir=%s" % tmp_path, "--steps=1000000"]
  this = job(start, *flags, num_workers=1)
  ps, chief = this.ps(), this.worker()
  wait_for_batches(chief, 10)
  chief.signal(signal.SIGTERM)
  assert chief.wait() == 128 + signal.SIGTERM
  ps.kill()
  this = job(start, flags[0], "--steps=%d" % (len(saw(chief)) + 20), num_workers=1)
  ps, again = this.ps(), this.worker()
  assert job_lib.codes(again, ps) == [0, 0]
  assert saw(again) == [BATCH * (len(saw(chief)) + number) for number in range(20)]


@pytest.mark.slow
def test_a_restarted_ps_brings_the_position_of_its_checkpoint(start, tmp_path):
  this = job(start, "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:10", "--steps=60",
             num_workers=1)
  ps, chief = this.ps(), this.worker()
  wait_for_batches(chief, 25)
  ps.kill()
  ps = this.ps()
  assert job_lib.codes(chief, ps) == [0, 0]
  number, = job_lib.find(chief, r"goes on at batch (\d+) of its data")
  step, = job_lib.find(chief, r"restored .*model.ckpt-(\d+)")
  assert number == step + 1  # the chief has stored it just before its checkpoint
  assert saw(chief)[-1] == 59 * BATCH


def noting(seen, in_python=False):
  """An input of 20 numbers; the first one of each batch of the training goes to `seen`."""
  def note(batch):
    seen.append(int(batch[0]))
    return batch

  def input_fn(mode, shard):
    rows = shard.dataset(tf.data.Dataset.range(20))
    if in_python:
      rows = rows.map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))
    batch = iterators.next_batch(rows.batch(shard.batch_size))
    if mode == "train":
      batch = tf.numpy_function(note, [batch], tf.int64)
    batch = tf.cast(tf.reshape(batch, [-1]), tf.float32)
    return batch, batch

  return input_fn


@pytest.mark.slow
def test_data_that_are_over_begin_anew(tmp_path, caplog):
  caplog.set_level("INFO", "tf1ps")
  for epochs in (1, 2):  # of the job, whenever it was started
    seen = []
    local_job.train(noting(seen), epochs=epochs, batch_size=BATCH, checkpoint_dir=str(tmp_path))
    assert seen == [0, 4, 8, 12, 16]
  assert "restored" in caplog.text and "goes on at" not in caplog.text


@pytest.mark.slow
def test_a_pipeline_in_python_is_told(caplog):
  caplog.set_level("INFO", "tf1ps")
  local_job.train(noting([], in_python=True), steps=3, batch_size=BATCH)
  assert "the input calls Python, so its position is not kept" in caplog.text


def test_a_position_that_cannot_be_kept_is_deleted_and_told_once(caplog, monkeypatch):
  with tf.Graph().as_default():
    iterators.next_batch(tf.data.Dataset.range(1000).batch(4))
    hook = input_positions.InputPositions(0, 1, 4, tf.train.get_or_create_global_step())
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(iterators.iterator_initializers(tf.get_default_graph()))
      hook.after_create_session(session, None)
      hook.add(1)
      hook.store(session)
      assert b"batches" in session.run(hook.variables[0])
      monkeypatch.setattr(iterators, "MOST_BYTES", 10)
      for _ in range(2):
        hook.add(1)
        hook.store(session)
        assert session.run(hook.variables[0]) == b""
  (line,) = [record.getMessage() for record in caplog.records if record.name == "tf1ps"]
  assert "the position of the input cannot be kept, so a restarted worker starts from" in line
