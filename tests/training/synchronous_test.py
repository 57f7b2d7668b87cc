"""Jobs with --sync_replicas, as a user starts them: uneven data, lost workers, ps that come "
  "back."""
from __future__ import annotations

import pathlib
import re
import time

import pytest
import tensorflow.compat.v1 as tf

from tests import harness, state_tasks
from tests.training import local_job
from tests.training.job import Job, codes, find, last_line

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples"
        r"(?:, \d+ more examples came too late)?, "
        r"[\d.]+ s, (.*), exit code (\d)")
UNEVEN = "--program=" + str(pathlib.Path(__file__).parents[1] / "programs" / "uneven.py")
SYNC = ["--sync_replicas", "--batch_size=4"]


@pytest.mark.slow
@pytest.mark.parametrize("on_uneven, steps, own_steps", [
  ("stop_all", 40, [40, 40, 40]), ("shrink", 100, [100, 70, 40]), ("pad", 100, [100, 70, 40])])
def test_uneven_data_ends_as_the_user_chose(start, tmp_path, on_uneven, steps, own_steps):
  job = Job(start, num_workers=3, flags=SYNC + [
    UNEVEN, "--shard=none", "--epochs=1", "--on_uneven=" + on_uneven,
    "--checkpoint_dir=%s" % tmp_path, "--save_summary_steps=1"])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 4
  ends = [last_line(worker, LAST) for worker in workers]
  assert [end[0] for end in ends] == own_steps
  assert [end[1] for end in ends] == [4 * own for own in own_steps]
  reasons = ["went through its data --epochs=1 times"] * 3
  if on_uneven == "stop_all":
    reasons[:2] = ["another worker's data ended (--on_uneven=stop_all); 4 of its examples were "
                   "drawn without an update, %d were left" % (4 * left)
                   for left in (100 - 41, 70 - 41)]
  assert [end[2] for end in ends] == reasons
  assert find(workers[0], r"global step (\d+) in ") == [steps]
  # The mean of gradients of 1 is 1, however many they are.
  assert find(workers[0], r"test first (\d+)") == [steps]
  # The mean of the losses of those whose gradients are in the update.
  assert losses(tmp_path) == [
    (1 if k < 40 else 0.5 if k < 70 else 0) - 2 * k for k in range(own_steps[0])]


@pytest.mark.slow
def test_data_are_repeated_until_all_workers_went_through_theirs(start, tmp_path):
  job = Job(start, flags=SYNC + [
    UNEVEN, "--shard=none", "--epochs=1", "--on_uneven=repeat", "--batches=12,5", "--noone_shot",
    "--checkpoint_dir=%s" % tmp_path])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3, workers[0].output + workers[1].output
  # TensorFlow says this at the end of a session whose ps has gone.
  assert not any("Cleanup partition error" in task.output for task in (ps, *workers))
  ends = [last_line(worker, LAST) for worker in workers]
  assert [end[:2] for end in ends] == [[12, 48], [12, 48]]
  assert [end[2] for end in ends] == [
    "went through its data --epochs=1 times",
    "all workers went through their data (--on_uneven=repeat)"]
  assert find(workers[0], r"global step (\d+) in ") == [12]
  assert workers[1].output.count("data begin again") == 2
  # Where the job ended nobody goes on: its positions are deleted.
  reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(tmp_path)))
  assert [reader.get_tensor("tf1ps/input_position/worker_%d" % i) for i in range(2)] == [b"", b""]


@pytest.mark.slow
def test_data_that_cannot_be_repeated_are_refused():
  def input_fn(mode, shard):
    rows = shard.dataset(tf.data.Dataset.range(100)).batch(shard.batch_size)
    batch = tf.cast(tf.data.make_one_shot_iterator(rows).get_next(), tf.float32)
    return batch, batch

  with pytest.raises(ValueError, match=(
      "Replace make_one_shot_iterator by tf.data.make_initializable")):
    local_job.train(input_fn, epochs=1, sync_replicas=True, on_uneven="repeat")


def losses(directory):
  """The losses that the chief has written as summaries."""
  file, = directory.glob("events.*")
  return [value.simple_value for event in tf.train.summary_iterator(str(file))
          for value in event.summary.value if value.tag == "loss"]


@pytest.mark.slow
def test_steps_are_reached_by_all_together(start):
  job = Job(start, num_ps=2, flags=["--sync_replicas", "--steps=20", "--clip_norm=1"])
  ps, workers = job.all()
  assert codes(*workers, *ps) == [0] * 4
  assert [last_line(worker, LAST)[0] for worker in workers] == [20, 20]
  assert find(workers[0], r"global step (\d+) in ") == [20]


@pytest.mark.slow
def test_the_others_go_on_without_a_lost_worker_which_comes_back(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, flags=["--sync_replicas", "--on_uneven=shrink", "--steps=40"])
  ps = job.ps()
  hold = ["--slow_index=0", "--block_at=20", "--block_until=%s" % gate]
  chief = job.worker(0, *hold)
  worker = job.worker(1, "--slow_index=1", "--block_at=10")
  worker.wait_for("holds step 10")
  worker.kill()
  chief.wait_for("/job:worker/task:1 is lost: silent for")
  chief.wait_for("holds step 20")
  again = job.worker(1, "--slow_index=1", "--block_at=1", "--block_until=%s" % gate)
  again.wait_for("holds step 1")  # it takes part again
  gate.write_text("")
  assert codes(chief, again, ps) == [0, 0, 0]
  assert last_line(chief, LAST)[0] == 40
  assert last_line(again, LAST)[0] == 21


@pytest.mark.slow
def test_a_lost_worker_that_comes_back_when_the_others_have_left(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, flags=["--sync_replicas", "--on_uneven=shrink", "--epochs=1",
                          "--evaluate_until=%s" % gate])
  ps, chief = job.ps(), job.worker(0)
  worker = job.worker(1, "--slow_index=1", "--block_at=5")
  worker.wait_for("holds step 5")
  worker.kill()
  chief.wait_for("holds its evaluation")  # it has left, and its session is closed
  again = job.worker(1)
  # It finds the state of the last round, begins no job, and makes no update after the checkpoint.
  assert again.wait() == 0
  steps, examples, reason = last_line(again, LAST)[:3]
  assert (steps, reason) == (0, "training had already ended for all workers")
  # What the killed one had said that it had trained on: the last beat may be older than its death.
  assert examples in range(0, 5 * 32, 32)
  gate.write_text("")
  assert codes(chief, ps) == [1, 1]
  assert "and the job failed: /job:worker/task:1 is lost: silent for" in chief.last_line


@pytest.mark.slow
def test_a_lost_worker_that_all_need_ends_the_job_by_name_after_a_save(start, tmp_path):
  job = Job(start, flags=["--sync_replicas", "--steps=1000000", "--step_seconds=0.02",
                          "--checkpoint_dir=%s" % tmp_path])
  ps, chief = job.ps(), job.worker(0)
  worker = job.worker(1, "--slow_index=1", "--block_at=10")
  worker.wait_for("holds step 10")
  worker.kill()
  assert codes(chief, ps) == [1, 1]
  assert "ReplicaLostError: /job:worker/task:1 is lost: silent for" in chief.last_line
  assert "1 of 2 replicas remain, and every update needs 2" in chief.last_line
  assert (tmp_path / "model.ckpt-9.index").exists()  # the updates before the one that it holds


@pytest.mark.slow
def test_a_ps_that_comes_back_is_restored(start, tmp_path):
  job = Job(start, flags=["--sync_replicas", "--steps=60", "--save_checkpoints=steps:10",
                          "--checkpoint_dir=%s" % (tmp_path / "ck"), "--heartbeat_timeout=60"])
  gate = tmp_path / "gate"
  ps = job.ps()
  chief = job.worker(0, "--slow_index=0", "--block_at=26", "--block_until=%s" % gate)
  worker = job.worker(1)
  chief.wait_for("holds step 26")
  ps.kill()
  again = job.ps()
  gate.write_text("")
  assert codes(chief, worker, again) == [0, 0, 0]
  assert find(chief, r"global step (\d+) in ") == [60]


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_an_update_that_was_cut_off_is_undone(start, tmp_path, index):
  died = tmp_path / "died"
  flags = SYNC + [UNEVEN, "--shard=none", "--steps=30", "--batches=10000,10000",
                  "--checkpoint_dir=%s" % (tmp_path / "ck"), "--save_checkpoints=steps:5",
                  "--heartbeat_timeout=60", "--died=%s" % died, "--last=%d" % index]
  job = Job(start, flags=flags)
  ps = job.ps()
  # Only one of them dies; the other one makes no update that it could die in.
  workers = [job.worker(i, "--die_at=%d" % (12 if i == index else 10**6)) for i in range(2)]
  harness.wait_until(died.exists, what="the death of worker %d" % index)
  assert workers[index].wait() == -9
  workers[index] = job.worker(index, "--die_at=1000000")
  assert codes(*workers, ps) == [0, 0, 0]
  assert find(workers[0], r"global step (\d+) in ") == [30]
  # Each update is in both variables, or in neither.
  assert find(workers[0], r"test first (\d+)") == find(workers[0], r"test .*second (\d+)") == [30]


@pytest.mark.slow
def test_a_worker_that_never_comes_is_named(start):
  job = Job(start, flags=["--sync_replicas", "--steps=10", "--start_timeout=8"])
  ps = job.ps()
  ps.wait_for("serving at")
  chief = job.worker(0)
  assert codes(chief, ps) == [1, 1]
  assert re.search(r"/job:worker/task:1 has sent no heartbeat within \d+ s: 1 of 2 "
                   r"replicas remain, and every update needs 2", chief.last_line)


@pytest.mark.slow
def test_a_worker_that_is_there_but_never_joins_is_named(start):
  job = Job(start, flags=["--sync_replicas", "--steps=10", "--start_timeout=8", "--container=c"])
  ps = job.ps()
  ps.wait_for("serving at")
  worker = start("worker 1", state_tasks.member, job.jobs, 1, 60.0, "c")
  worker.wait_for("known [")
  chief = job.worker(0)
  assert chief.wait() == 1
  assert re.search(r"/job:worker/task:1 sends heartbeats, but has not joined within \d+ s: 1 of 2 "
                   r"replicas remain, and every update needs 2", chief.last_line)
  assert worker.is_running


@pytest.mark.slow
def test_a_second_job_knows_the_first_ones_workers_from_its_own(start):
  job = Job(start, flags=["--sync_replicas", "--steps=10", "--start_timeout=60"])
  ps = job.ps(0, "--persistent")
  workers = [job.worker(i) for i in range(2)]
  assert codes(*workers) == [0, 0]
  chief = job.worker(0)
  chief.wait_for("saved")
  began = time.monotonic()
  # Its watch sees that the first job's worker has ended, and that this one's has not come yet.
  harness.wait_until(lambda: time.monotonic() - began > 4.0)
  assert codes(chief, job.worker(1)) == [0, 0]
  assert find(chief, r"global step (\d+) in ") == [10]
  ps.signal()
  assert ps.wait() == 0


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_is_no_end_of_the_data(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, flags=["--sync_replicas", "--steps=1000000", "--step_seconds=0.02",
                          "--block_at=10", "--block_until=%s" % gate])
  ps, chief, worker = job.ps(), job.worker(0), job.worker(1)
  for task in (chief, worker):
    task.wait_for("holds step 10")
  gate.write_text("")
  worker.signal()
  assert codes(worker, chief, ps) == [128 + 15, 1, 1]
  assert "/job:worker/task:1 failed: ended by signal 15" in chief.output
