"""One program under each replication, by flags alone, on real processes."""
from __future__ import annotations

import pathlib
import re

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.replication import reference
from tests.training.job import Job, codes, find, last_line
from tf1ps import state
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task
from tf1ps.session import signature
from tf1ps.training.options import Options, shared_by_workers

LAST = (r"worker \d(?: \(chief\))?: (\d+) steps, (\d+) examples"
        r"(?:, staleness [\d.]+ \(\d+ at most\))?, [\d.]+ s, (.*), exit code (\d)")
PROGRAMS = pathlib.Path(__file__).parents[1] / "programs"
UNEVEN = ["--program=%s" % (PROGRAMS / "uneven.py"), "--shard=none", "--epochs=1", "--batch_size=4"]
FIFTY = "--program=%s" % (PROGRAMS / "fifty_steps.py")
IN_GRAPH, ALL_REDUCE = "--replication=in_graph", "--replication=all_reduce"
SYNC = "--sync_replicas"
# Synchronous schemes: the flags, and how many ps.
SCHEMES = {"between_graph": ([SYNC], 2), "in_graph": ([IN_GRAPH, SYNC], 2),
           "all_reduce": ([ALL_REDUCE], 0), "clones": ([SYNC, "--num_clones=2"], 1),
           "in_graph_clones": ([IN_GRAPH, SYNC, "--num_clones=2"], 1),
           "all_reduce_clones": ([ALL_REDUCE, "--num_clones=2"], 0)}


def slow(*values, marks=()):
  """A case that only the slow tests try."""
  return pytest.param(*values, marks=[pytest.mark.slow, *marks])


def values_in(directory):
  """The trained variables in a directory's last checkpoint."""
  reader = tf.train.load_checkpoint(str(directory))
  return {name: reader.get_tensor(name) for name in reference.START}


@pytest.mark.parametrize("scheme, workers, optimizer", [
  ("in_graph", 3, "momentum"), ("all_reduce", 3, "adam"),
  ("clones", 2, "adam"),
  slow("between_graph", 3, "adamw", marks=[pytest.mark.job]),
  slow("in_graph_clones", 2, "sgd", marks=[pytest.mark.job]),
  slow("all_reduce_clones", 2, "adam")])
def test_fifty_steps_are_those_of_one_process_with_the_whole_batch(
    start, tmp_path, scheme, workers, optimizer):
  flags, num_ps = SCHEMES[scheme]
  job = Job(start, num_ps, workers, flags=flags + [
    FIFTY, "--reference=" + optimizer, "--epochs=1",
    "--batch_size=%d" % (reference.BATCH // workers), "--checkpoint_dir=%s" % tmp_path])
  ps, started = job.all()
  assert codes(*started, *ps) == [0] * (workers + num_ps)
  assert find(started[0], r"global step (\d+) in ") == [reference.STEPS]
  reference.check(values_in(tmp_path), optimizer)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["between_graph", "clones"])
def test_partitioned_variables_are_trained_alike(start, tmp_path, scheme):
  flags, num_ps = SCHEMES[scheme]
  job = Job(start, num_ps, 2, flags=flags + [
    FIFTY, "--reference=adam", "--epochs=1", "--clip_norm=1e6",
    "--batch_size=%d" % (reference.BATCH // 2), "--checkpoint_dir=%s" % tmp_path,
    "--partition_bytes=50"])  # the table in three shards
  ps, started = job.all()
  assert codes(*started, *ps) == [0] * (2 + num_ps)
  assert find(started[0], r"variables +shards +bytes") == []
  reference.check(values_in(tmp_path), "adam")


SCALAR = ["--program=%s" % (PROGRAMS / "scalar.py"), "--shard=none", "--batch_size=1"]


# The others: tests/replication/client_graph_test.py and mirrored_model_test.py, in this process.
@pytest.mark.parametrize("scheme", [slow("between_graph")])
def test_two_workers_with_a_target_each_meet_in_the_middle(start, tmp_path, scheme):
  flags, num_ps = SCHEMES[scheme]
  job = Job(start, num_ps, 2, flags=flags + SCALAR + [
    "--steps=5", "--checkpoint_dir=%s" % tmp_path, "--save_checkpoints=steps:1,keep:10"])
  ps, workers = job.all()
  assert codes(*workers, *ps) == [0] * (2 + num_ps)
  assert [tf.train.load_checkpoint("%s/model.ckpt-%d" % (tmp_path, step)).get_tensor("w")
          for step in range(6)] == [0.0, 1.0, 1.5, 1.75, 1.875, 1.9375]


@pytest.mark.slow
def test_in_graph_threads_reach_their_target_together(start, tmp_path):
  job = Job(start, 1, 2, flags=[IN_GRAPH, "--targets=2,2", *SCALAR, "--examples=200",
                                "--checkpoint_dir=%s" % tmp_path])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 3
  (steps,) = find(workers[0], r"global step (\d+) in ")
  assert 200 <= steps <= 201  # one may have been on its way
  assert tf.train.load_checkpoint(str(tmp_path)).get_tensor("w") == 2.0


@pytest.mark.slow
def test_a_last_batch_that_the_clones_cannot_divide(start, tmp_path):
  """600 records in batches of 7: the last of 86 has 5, so that one of the clones gets none."""
  found = []
  for number, flags in enumerate([[], ["--num_clones=6"]]):
    directory = tmp_path / str(number)
    job = Job(start, 1, 1, flags=[FIFTY, "--epochs=1", "--batch_size=7",
                                  "--checkpoint_dir=%s" % directory, *flags])
    ps, workers = job.all()
    assert codes(*workers, *ps) == [0, 0]
    assert last_line(workers[0], LAST)[:2] == [86, 600]
    found.append(values_in(directory))
  for name, value in found[0].items():
    assert abs(value - found[1][name]).max() < 1e-5


@pytest.mark.slow
def test_in_graph_the_first_end_of_data_ends_synchronous_training(start):
  job = Job(start, num_workers=3, flags=[IN_GRAPH, SYNC, "--batches=30,20,10", *UNEVEN])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 4
  assert last_line(workers[0], LAST)[:2] == [10, 120]
  assert find(workers[0], r"test first (\d+)") == [10]
  assert workers[1].last_line == (
    "worker 1: the chief released this task: the job has ended, exit code 0")


@pytest.mark.slow
@pytest.mark.parametrize("batches", ["10,20,30", slow("30,20,10")])
def test_in_graph_asynchronous_replicas_end_each_with_its_data(start, batches):
  job = Job(start, num_workers=3, flags=[IN_GRAPH, "--batches=" + batches, *UNEVEN])
  (ps,), workers = job.all()
  assert codes(*workers, ps) == [0] * 4
  assert last_line(workers[0], LAST)[:3] == [60, 240, "went through its data --epochs=1 times"]
  assert "staleness" in workers[0].last_line
  assert find(workers[0], r"global step (\d+) in ") == [60]


@pytest.mark.slow
def test_in_graph_steps_and_a_second_job_from_the_checkpoint(start, tmp_path):
  flags = [IN_GRAPH, "--checkpoint_dir=%s" % tmp_path]
  for steps in (40, 60):
    job = Job(start, num_workers=2, flags=flags + ["--steps=%d" % steps])
    (ps,), workers = job.all()
    assert codes(*workers, ps) == [0] * 3
    (reached,) = find(workers[0], r"global step (\d+) in ")
    assert steps <= reached < steps + 2


@pytest.mark.slow
@pytest.mark.parametrize("update", ["async", slow("sync")])
def test_in_graph_a_worker_that_comes_back_is_used_again(start, tmp_path, update):
  gate = tmp_path / "gate"
  job = Job(start, num_workers=2, heartbeat_timeout=60, flags=[
    IN_GRAPH, "--sync_replicas=%s" % (update == "sync"), "--steps=60", "--slow_index=0",
    "--block_at=10",
    "--block_until=%s" % gate])
  (ps,), workers = job.all()
  workers[0].wait_for("holds step 10")
  workers[1].kill()
  workers[1] = job.worker(1)
  workers[1].wait_for("serving at")
  workers[0].wait_for("recovered: session 2")
  gate.write_text("")
  assert codes(*workers, ps) == [0] * 3
  assert find(workers[0], r"global step (\d+) in ")[0] >= 60


@pytest.mark.slow
def test_in_graph_a_worker_comes_back_while_the_first_ones_data_have_ended(start):
  job = Job(start, num_workers=2, heartbeat_timeout=60, flags=[
    IN_GRAPH, "--batches=1,100", "--last=1", *UNEVEN])
  (ps,), workers = job.all()
  workers[0].wait_for("saved")
  workers[1].kill()
  workers[1] = job.worker(1)
  workers[0].wait_for("recovered: session 2")
  assert codes(*workers, ps) == [0] * 3
  assert find(workers[0], r"global step (\d+) in ")[0] >= 101


@pytest.mark.slow
def test_in_graph_a_worker_that_never_comes_is_named(start):
  job = Job(start, num_workers=2, flags=[IN_GRAPH, SYNC, "--steps=10", "--start_timeout=1"])
  job.ps().wait_for("serving at")
  chief = job.worker(0)
  assert chief.wait() == 1
  assert "TaskUnavailableError" in chief.last_line and "/job:worker/task:1" in chief.last_line


SYNC_GIVEN = [SYNC, "--wire_dtype=float32", "TF1PS_PACK_BYTES=524288"]


@pytest.mark.slow
def test_a_worker_with_another_scheme_than_the_chief_is_refused(start):
  job = Job(start, num_workers=2, flags=["--steps=1000000", "--step_seconds=0.02"])
  ps, chief, worker = job.ps(), job.worker(0, IN_GRAPH, SYNC), job.worker(1, SYNC)
  assert worker.wait() == 1
  assert "started with %s, but the chief, /job:worker/task:0, with --rep" % " ".join(
    ["--replication=between_graph", *SYNC_GIVEN]) in worker.last_line
  chief.kill()
  ps.kill()


@pytest.mark.parametrize("chief_is_sync", [True, False])
def test_an_asynchronous_and_a_synchronous_worker_differ(chief_is_sync):
  task, chief = Task("worker", 1, "a:1"), "/job:worker/task:0"
  with tf.Graph().as_default():
    mine, chiefs = [
      signature.signature(task, shared_by_workers(Options(steps=1, sync_replicas=is_sync)))
      for is_sync in (not chief_is_sync, chief_is_sync)]
  given = ["--replication=between_graph", *(["--nosync_replicas"] if chief_is_sync else SYNC_GIVEN)]
  with pytest.raises(signature.GraphMismatchError, match=(
      "started with %s, but the chief, %s, with --rep" % (" ".join(given), chief))):
    signature.compare(mine, chiefs, task.name, chief)


@pytest.mark.slow
def test_in_graph_an_error_in_another_replica_ends_the_job(start):
  job = Job(start, num_workers=2, flags=[IN_GRAPH, "--steps=100000", "--slow_index=1",
                                         "--nan_at=20"])
  (ps,), workers = job.all()
  assert codes(workers[0], ps)[0] == 1
  assert "NaN" in workers[0].last_line


@pytest.mark.slow
def test_all_reduce_ends_for_all_with_the_first_end_of_data(start):
  job = Job(start, 0, 3, flags=[ALL_REDUCE, "--batches=30,20,10", *UNEVEN])
  _, workers = job.all()
  assert codes(*workers) == [0] * 3
  assert [last_line(worker, LAST)[:2] for worker in workers] == [[10, 40]] * 3
  assert [last_line(worker, LAST)[2] for worker in workers] == [
    "another worker finished its part, was stopped by a hook or received a signal; 4 examples were "
    "read and not trained on"
  ] * 2 + ["went through its data --epochs=1 times"]
  assert find(workers[0], r"test first (\d+)") == [10]


@pytest.mark.slow
def test_all_reduce_steps_and_examples_and_a_second_job_from_the_checkpoint(start, tmp_path):
  flags = [ALL_REDUCE, "--batch_size=8", "--checkpoint_dir=%s" % tmp_path]
  for end, steps, examples in (("--steps=25", 25, 200), ("--examples=730", 46, 168)):
    job = Job(start, 0, 2, flags=flags + [end])
    _, workers = job.all()
    assert codes(*workers) == [0] * 2
    assert find(workers[0], r"global step (\d+) in ") == [steps]
    assert {last_line(worker, LAST)[1] for worker in workers} == {examples}


@pytest.mark.slow
@pytest.mark.parametrize("lost", [2, slow(0), slow(1)])
def test_all_reduce_a_lost_worker_ends_the_job_by_name(start, lost):
  job = Job(start, 0, 3, flags=[ALL_REDUCE, "--steps=1000000"])
  workers = [job.worker(index, "--slow_index=%d" % lost, "--block_at=10") for index in range(3)]
  workers[lost].wait_for("holds step 10")
  workers[lost].kill()
  others = [worker for index, worker in enumerate(workers) if index != lost]
  assert codes(*others) == [1, 1]
  for worker in others:
    assert re.search(
      r"PeerLostError: .*lost /job:worker/task:%d .*start all workers again" % lost,
      worker.last_line)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_all_reduce_a_killed_worker_comes_back_and_all_go_on_from_the_checkpoint(
    start, tmp_path, lost):
  """Each checkpoint has the value of an undisturbed job, to the last digit."""
  gate = tmp_path / "gate"
  job = Job(start, 0, 2, heartbeat_timeout=60, flags=[
    ALL_REDUCE, *SCALAR, "--steps=12", "--checkpoint_dir=%s" % tmp_path,
    "--save_checkpoints=steps:1,keep:20", "--block_at=7", "--block_until=%s" % gate])
  _, workers = job.all()
  for worker in workers:
    worker.wait_for("holds batch 7")
  survivor = workers[1 - lost]
  workers[lost].kill()
  gate.write_text("")
  workers[lost] = job.worker(lost)
  assert codes(*workers) == [0, 0]
  assert "recovered: session 2 of this task" in survivor.output
  assert [tf.train.load_checkpoint("%s/model.ckpt-%d" % (tmp_path, step)).get_tensor("w")
          for step in range(13)] == [2.0 - 2.0 ** (1 - step) for step in range(13)]


@pytest.mark.slow
@pytest.mark.parametrize("loser", [0, 1])
def test_all_reduce_a_worker_that_alone_loses_its_session_has_all_go_on_from_the_checkpoint(
    start, tmp_path, loser):
  job = Job(start, 0, 2, heartbeat_timeout=60, flags=[
    ALL_REDUCE, *SCALAR, "--steps=12", "--checkpoint_dir=%s" % tmp_path,
    "--save_checkpoints=steps:1,keep:20"])
  workers = [job.worker(index, *["--lose_at=7"] * (index == loser)) for index in range(2)]
  assert codes(*workers) == [0, 0]
  for worker in workers:
    assert "recovered: session 2 of this task" in worker.output
  assert [tf.train.load_checkpoint("%s/model.ckpt-%d" % (tmp_path, step)).get_tensor("w")
          for step in range(13)] == [2.0 - 2.0 ** (1 - step) for step in range(13)]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [20, 1000000])
def test_all_reduce_a_chief_that_is_killed_behind_the_last_checkpoint_needs_no_worker(
    start, tmp_path, steps):
  """The loop ends with its own last step, or because a hook of the other worker stops."""
  gate, goal = tmp_path / "gate", "--steps=%d" % steps
  job = Job(start, 0, 2, flags=[ALL_REDUCE, goal, "--checkpoint_dir=%s" % tmp_path])
  chief = job.worker(0, "--evaluate_until=%s" % gate)
  worker = job.worker(1, *["--stop_when=%s" % tmp_path] * (steps > 20))
  assert worker.wait() == 0
  chief.wait_for("holds its evaluation")
  chief.kill()
  assert not state.RunFile(str(tmp_path)).has_ended(goal)
  again = job.worker(0)
  assert again.wait() == 0
  assert "the last checkpoint was saved before this start" in again.last_line
  last, = find(again, r"global step (\d+)")
  assert 0 < last <= 20 and (last == 20) == (steps == 20)
  assert state.RunFile(str(tmp_path)).has_ended(goal)


@pytest.mark.slow
def test_all_reduce_a_worker_that_comes_to_itself_when_the_job_has_ended(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, 0, 2, heartbeat_timeout=10, flags=[
    ALL_REDUCE, "--steps=20", "--checkpoint_dir=%s" % tmp_path])
  chief = job.worker(0)
  worker = job.worker(1, "--slow_index=1", "--block_at=10", "--block_until=%s" % gate)
  worker.wait_for("holds step 10")
  chief.kill()
  gate.write_text("")
  # As by a next process of the chief, which has ended meanwhile.
  state.RunFile(str(tmp_path)).write("next", state.RUN_ENDED, 20, goal="--steps=20")
  assert worker.wait() == 0
  assert "the run in %s has ended with --steps=20" % tmp_path in worker.last_line


@pytest.mark.slow
def test_all_reduce_a_worker_that_does_not_come_to_the_start(start):
  job = Job(start, 0, 2, flags=[ALL_REDUCE, "--steps=10"])
  worker = job.worker(1, "--hang_in_initialiser")
  harness.wait_until(lambda: probe.probe_task(Task("worker", 1, job.jobs["worker"][1])).is_up)
  chief = job.worker(0, "--start_timeout=5")
  assert codes(chief, worker) == [1, 1]
  assert "initialising for ever" in worker.output
  assert "did not join the start within 5 s (--start_timeout)" in chief.last_line
  assert "/job:worker/task:0" in worker.last_line


@pytest.mark.slow
def test_all_reduce_an_error_of_one_worker_is_the_others_reason(start):
  job = Job(start, 0, 2, flags=[ALL_REDUCE, "--steps=1000000", "--slow_index=1"])
  workers = [job.worker(0), job.worker(1, "--fail_in=step")]
  assert codes(*workers) == [1, 1]
  assert "a bad record" in workers[1].last_line
  assert "/job:worker/task:1" in workers[0].last_line


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, slow(1)])
def test_all_reduce_workers_that_are_told_to_stop_save_and_leave(start, tmp_path, first):
  job = Job(start, 0, 2, flags=[
    ALL_REDUCE, "--steps=1000000", "--step_seconds=0.02", "--checkpoint_dir=%s" % tmp_path])
  _, workers = job.all()
  workers[0].wait_for("progress: ")
  workers[first].signal()
  workers[1 - first].signal()
  ended = codes(*workers)
  # The other one's loop may have ended before its own signal came.
  assert ended[first] == 143 and ended[1 - first] in (143, 1)
  assert not tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-0")


@pytest.mark.slow
def test_all_reduce_no_worker_of_a_job_that_a_signal_ends_has_done_its_part(start, tmp_path):
  job = Job(start, 0, 3, heartbeat_timeout=30, flags=[
    ALL_REDUCE, "--steps=1000000", "--step_seconds=0.02", "--checkpoint_dir=%s" % tmp_path,
    "--start_timeout=60"])
  _, workers = job.all()
  workers[0].wait_for("progress: ")
  workers[1].signal()
  assert workers[1].wait() == 143
  again = job.worker(1)  # as a scheduler starts a task of a drained node
  assert codes(workers[0], workers[2], again) == [1, 1, 1]
  assert "JobLostError: a signal to another worker has ended the run" in workers[2].last_line
  assert "JobLostError: a signal has ended the run before its goal" in again.last_line
  assert not state.RunFile(str(tmp_path)).has_ended("--steps=1000000", None)


@pytest.mark.slow
def test_all_reduce_a_last_checkpoint_that_fails_is_no_loss_of_a_worker(start, tmp_path):
  gate = tmp_path / "gate"
  job = Job(start, 0, 1, flags=[ALL_REDUCE, "--steps=10", "--checkpoint_dir=%s" % tmp_path,
                                "--block_at=5", "--block_until=%s" % gate])
  chief = job.worker()
  chief.wait_for("holds step 5")
  (tmp_path / "model.ckpt-10.index").mkdir()
  gate.write_text("")
  assert chief.wait() == 1
  assert re.match(
    r"worker 0 \(chief\): CheckpointError: the checkpoint .* cannot be saved: .*; Is a directory",
    chief.last_line)


@pytest.mark.slow
@pytest.mark.parametrize("empty", [0, slow(1)])
def test_all_reduce_a_worker_without_data_is_named_at_once(start, empty):
  batches = ["5", "5"]
  batches[empty] = "0"
  job = Job(start, 0, 2, flags=[ALL_REDUCE, "--batches=" + ",".join(batches), *UNEVEN])
  _, workers = job.all()
  assert codes(*workers) == [1, 1]
  assert "ValueError: this worker's share of the data is empty" in workers[empty].last_line
  assert "/job:worker/task:%d" % empty in workers[1 - empty].last_line
