"""The validators of tools/chaos on small histories made by hand: what they allow, and what not."""
from __future__ import annotations

import json

import pytest

from tools.chaos import history, plan, report, validators

pytestmark = pytest.mark.any_tensorflow

OPTIONS = dict(kind="tf1ps", seed=1, seconds=10.0, workers=3, ps=2, examples=8, steps=4,
               wait_limit=10.0, breaks=[], cells=[["kill", "ps", "training"]])


class Story(object):
  """Writes a history; each event comes 0.1 s after the one before."""

  def __init__(self, mode="async", **options):
    self.events, self._t = [], 100.0
    self.say("run", "job", mode=mode, **dict(OPTIONS, **options))

  def say(self, task, event, **fields):
    self._t += 0.1
    self.events.append(dict(t=round(self._t, 3), job="async", task=task, event=event, **fields))

  def wait(self, seconds):
    self._t += seconds

  def step(self, worker, step, ids=()):
    task = "worker %d" % worker
    self.say(task, "try", number=0)
    self.say(task, "drawn", ids=list(ids))
    self.say(task, "ack", number=0, ids=list(ids), step=step)

  def save(self, step, counts, second=None):
    path = "model.ckpt-%d" % step
    self.say("worker 0", "saving", path=path)
    self.say("watcher", "checkpoint", path=path, step=step, counts=[counts, second or counts])

  def restore(self, step):
    self.say("worker 0", "restoring", path="model.ckpt-%d" % step)
    self.say("worker 0", "restored", path="model.ckpt-%d" % step)

  def problems(self, check):
    return check(validators.Job(self.events)).problems


def test_each_update_is_acknowledged_or_was_tried():
  story = Story()
  story.step(0, 1)
  story.step(1, 2)
  story.say("worker 2", "try", number=1)  # killed before the answer
  story.save(3, [1, 1, 1])
  assert story.problems(validators.check_updates) == []
  story.save(4, [1, 1, 2])
  assert story.problems(validators.check_updates) == [
    "model.ckpt-4: ps %d has applied 2 updates of worker 2 since the start, which has 0 "
    "acknowledged steps and 1 tried ones" % ps for ps in range(2)]


def test_an_acknowledged_update_is_on_every_ps():
  story = Story()
  story.step(0, 1)
  story.save(1, [1, 0, 0], [0, 0, 0])
  assert story.problems(validators.check_updates) == [
    "model.ckpt-1: ps 1 has applied 0 updates of worker 0 since the start, which has 1 "
    "acknowledged steps and 1 tried ones"]


def test_updates_count_from_the_restored_checkpoint():
  story = Story()
  story.step(0, 1)
  story.save(1, [1, 0, 0])
  story.step(0, 2)
  story.restore(1)
  story.step(1, 2)
  story.save(2, [1, 1, 0])
  assert story.problems(validators.check_updates) == []
  story.save(3, [2, 1, 0])  # the lost step is there again
  assert len(story.problems(validators.check_updates)) == 2


def test_the_step_of_a_save_under_way_may_be_in_it_or_not():
  for count in (0, 1):
    story = Story()
    story.say("worker 0", "saving", path="model.ckpt-1")
    story.step(1, 1)
    story.say("watcher", "checkpoint", path="model.ckpt-1", step=count,
              counts=[[0, count, 0], [0, 1, 0]])
    assert story.problems(validators.check_updates) == []


def test_the_global_step_falls_by_a_declared_rollback_alone():
  story = Story()
  story.step(0, 5)
  story.save(5, [5, 0, 0])
  story.step(0, 7)
  story.step(1, 6)
  assert story.problems(validators.check_global_step) == [
    "worker 1 read global step 6 at 101.20, after 7 was acknowledged"]
  story = Story()
  story.step(0, 5)
  story.save(5, [5, 0, 0])
  story.step(0, 7)
  story.restore(5)
  story.step(1, 6)
  verdict = validators.check_global_step(validators.Job(story.events))
  assert verdict == ("global step", [], "1 rollbacks, steps lost: 2")


def test_a_step_that_began_before_another_was_acknowledged_may_be_older():
  story = Story()
  story.say("worker 1", "try", number=1)
  story.step(0, 7)
  story.say("worker 1", "ack", number=1, ids=[], step=6)
  assert story.problems(validators.check_global_step) == []


def test_a_rollback_goes_to_the_latest_checkpoint():
  story = Story()
  story.save(3, [3, 0, 0])
  story.save(5, [5, 0, 0])
  story.restore(3)
  assert story.problems(validators.check_global_step) == [
    "the job went back to step 3, although a checkpoint of step 5 was complete"]


def test_every_example_is_in_an_update_that_counts():
  story = Story()
  story.step(0, 1, [0, 1, 2, 3])
  story.save(1, [1, 0, 0])
  story.step(1, 2, [4, 5, 6, 7])
  assert story.problems(validators.check_examples) == []
  story.restore(1)  # the second step is lost, and its examples are not trained on again
  story.step(1, 2, [4, 5])
  assert story.problems(validators.check_examples) == [
    "2 of 8 examples are in no update, such as 6, 7"]
  story.step(1, 2, [6, 7])
  verdict = validators.check_examples(validators.Job(story.events))
  assert verdict == ("examples", [], "8 examples, each in an update; 4 drawn again")


def test_an_example_that_was_only_drawn_is_missing():
  story = Story()
  story.step(0, 1, range(7))
  story.say("worker 1", "drawn", ids=[7])
  assert story.problems(validators.check_examples) == [
    "1 of 8 examples are in no update, such as 7"]


def test_a_synchronous_update_has_one_gradient_of_each_replica():
  story = Story("sync")
  story.save(2, [2, 2, 2])
  story.save(4, [4, 4, 4])
  assert story.problems(validators.check_synchronous) == []
  story = Story("sync")
  story.save(4, [5, 4, 3], [4, 4, 4])
  assert story.problems(validators.check_synchronous) == [
    "model.ckpt-4: ps 0 has [5, 4, 3] gradients of the workers in 4 updates"]


def test_a_synchronous_job_makes_all_its_steps():
  story = Story("sync")
  story.save(3, [3, 3, 3])
  assert story.problems(validators.check_synchronous) == ["the last checkpoint has step 3 of 4"]
  story.say("worker 0", "restored", path="model.ckpt-3")
  story.say("worker 0", "ending")
  assert story.problems(validators.check_synchronous) == ["the last checkpoint has step 3 of 4"]
  story.say("worker 0", "restored", path="model.ckpt-3")  # a ps was killed at the end
  assert story.problems(validators.check_synchronous) == []


def test_no_worker_sees_one_synchronous_update_twice():
  story = Story("sync")
  story.say("worker 0", "at", number=1, step=1)
  story.say("worker 0", "at", number=2, step=1)
  assert story.problems(validators.check_global_step) == [
    "worker 0 read global step 1 after an update, and 1 before it"]


def make_queue_story():
  story = Story()
  story.say("producer 0", "put_try", ids=[1, 2, 3])
  story.say("producer 0", "put_ack", ids=[1, 2, 3])
  story.say("consumer 0", "get_try", count=4)
  return story


def test_each_element_is_taken_once():
  story = make_queue_story()
  story.say("consumer 0", "get_ack", ids=[1, 2, 3])
  assert story.problems(validators.check_queue) == []
  story.say("consumer 1", "get_ack", ids=[3])
  assert story.problems(validators.check_queue) == [
    "1 elements were taken more than once, such as [3]"]


def test_an_element_is_lost_with_its_consumer_or_its_ps_alone():
  story = make_queue_story()
  story.say("consumer 0", "get_ack", ids=[1])
  assert story.problems(validators.check_queue) == [
    "2 elements are lost, and consumers that were killed or got no answer had asked for 0"]
  story.say("consumer 1", "get_try", count=4)
  story.say("consumer 1", "begin", pid=1, tensorflow="2")
  assert story.problems(validators.check_queue) == []
  story = make_queue_story()
  story.say("consumer 0", "get_ack", ids=[1])
  story.say("run", "inject", number=1, fault="kill", role="ps", phase="training", targets=["ps 0"])
  assert story.problems(validators.check_queue) == []


def make_injected_story(seconds):
  story = Story()
  story.say("run", "inject", number=1, fault="kill", role="ps", phase="training",
            targets=["ps 1"], seconds=0)
  story.say("run", "recovered", number=1, seconds=seconds, late=[] if seconds else ["worker 1"])
  return story


def test_the_job_recovers_within_the_limit():
  assert make_injected_story(4.0).problems(validators.check_waits) == []
  assert make_injected_story(None).problems(validators.check_waits) == [
    "worker 1 made no step within 10 s after injection 1 (kill of ps 1, training)"]
  assert Story().problems(validators.check_waits) == [
    "the job never began to train, or nothing was injected"]


def test_the_last_task_ends_soon_after_the_last_step():
  story = make_injected_story(4.0)
  story.step(0, 1)
  story.wait(11.0)
  story.say("run", "exit", of="ps 0", pid=1, code=0, killed=False, given_up=False)
  assert story.problems(validators.check_waits) == [
    "the last task ended 11.1 s after the last step"]


def test_a_job_that_does_not_end_waits_too_long():
  story = make_injected_story(4.0)
  story.say("run", "end", given_up=["worker 2", "ps 0"])
  assert story.problems(validators.check_waits) == [
    "the job did not end: no step for 10 s, and worker 2, ps 0 still there"]


@pytest.mark.parametrize("code, killed, given_up, after_gate, problem", [
  (0, False, False, True, None), (-9, True, False, False, None),
  (1, False, False, True, "worker 0 ended with 1"),
  (-9, True, True, True, "worker 0 did not end"),
  (0, False, False, False, "worker 0 ended with 0 before its work was done")])
def test_exit_codes_are_true(code, killed, given_up, after_gate, problem):
  story = Story()
  story.say("run", "start", of="worker 0", pid=1)
  if after_gate:
    story.say("run", "gate")
  story.say("run", "exit", of="worker 0", pid=1, code=code, killed=killed, given_up=given_up)
  if not after_gate:
    story.say("run", "gate")
  assert story.problems(validators.check_exits) == ([problem] if problem else [])


def test_a_task_without_an_end_is_a_problem():
  story = Story()
  story.say("run", "start", of="ps 0", pid=1)
  assert story.problems(validators.check_exits) == ["ps 0 has no end"]


def test_memory_threads_and_files_stay():
  def problems(last, born=0):
    story = Story()
    story.wait(60.0 * born)
    for minute in range(10):
      for _ in range(6):
        story.wait(9.8)
        memory = last if minute == 9 else 50.0 if minute < 2 else 100.0
        story.say("run", "usage", of="ps 0", pid=1, memory=memory, threads=50, files=20)
    story.say("run", "stop")
    return story.problems(validators.check_usage)

  assert problems(109.0) == []
  assert problems(112.0) == ["ps 0: memory grew from 100 in its minute 5 to 112"]
  assert problems(109.0, born=4) == []  # a young one still grows


def test_a_missing_cell_fails_a_run():
  job = validators.Job(Story(cells=[["kill", "ps", "training"], ["cut", "ps", "saving"]]).events)
  assert validators.check_cells([job]).problems == [
    "never injected: kill x ps x training, cut x ps x saving"]


def test_a_saved_history_is_checked_again(tmp_path, capsys):
  path = tmp_path / "history.jsonl"
  events = make_injected_story(4.0).events
  path.write_text("".join(json.dumps(event) + "\n" for event in reversed(events)))
  assert history.read_history(str(path)) == events
  assert report.print_report(str(path)) == 1
  text = capsys.readouterr().out
  assert ("`python -m tools.chaos run --seconds=10 --seed=1 --modes=async --world=one "
          "--wait_limit=10`") in text
  assert "| kill | 1 | 4.0 | 4.0 |" in text
  assert "| async | waits | holds | 1 recoveries, median 4.0 s, worst 4.0 s |" in text
  assert "- async, queue: no element was taken" in text
  path.write_text("no event\n")
  with pytest.raises(ValueError, match="history.jsonl, line 1 is no event: no event"):
    history.read_history(str(path))


def test_two_processes_write_whole_lines(tmp_path):
  path = str(tmp_path / "history.jsonl")
  one, other = (history.Writer(path, "async", task) for task in ("ps 0", "ps 1"))
  reader = history.Reader(path)
  one.write("begin", pid=1)
  other.write("begin", pid=2)
  assert [(event["task"], event["pid"]) for event in reader.read()] == [("ps 0", 1), ("ps 1", 2)]
  with open(path, "a") as file:
    file.write('{"t": 1')
  assert reader.read() == []
  for each in (one, other, reader):
    each.close()


def test_a_seed_chooses_the_injections():
  cells = plan.cells()
  assert len(cells) == 39 == len(set(cells))

  def first(seed, job="async"):
    chosen = plan.injections(seed, job, cells)
    return [next(chosen) for _ in cells]

  assert first(1) == first(1)
  assert first(1) != first(2)
  assert first(1) != first(1, "sync")
  assert sorted((each.fault, each.role, each.phase) for each in first(1)) == sorted(cells)
  assert all(sorted(each.targets) == sorted(each.healed) for each in first(1))
  assert any(each.targets != each.healed for each in first(1))  # fixed in another order


def test_without_a_network_there_are_no_cuts():
  assert {cell[0] for cell in plan.cells(has_network=False, has_disk=False)} == {"kill", "stop"}


def test_the_report_has_the_command_of_the_same_run():
  jobs = [validators.Job(Story(
    mode="sync", faults=["kill", "disk"], wait_limit=90.0, breaks=["token"]).events)]
  assert report.command(jobs) == (
    "python -m tools.chaos run --seconds=10 --seed=1 --modes=sync --breaks=token "
    "--faults=kill,disk --world=one --wait_limit=90")
  text = "\n".join(report.lines("a history", jobs, validators.check(jobs)))
  assert "`%s`" % report.command(jobs) in text
  assert "| async | examples | – | not judged: " in text and "every cell" not in text


def test_a_run_of_twenty_minutes_must_have_each_combination():
  story = Story(seconds=1200.0, cells=[["kill", "ps", "training"], ["stop", "ps", "training"]])
  story.say("run", "inject", number=1, fault="kill", role="ps", phase="training", targets=["ps 0"])
  verdict, = validators.check([validators.Job(story.events)])["all"]
  assert verdict.problems == ["never injected: stop x ps x training"]
