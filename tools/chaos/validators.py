"""Checks a history. Each validator reads the events of one job and returns a `Verdict`.

Two notions are common to them:

- A *lineage* is the state of the variables between two restores. A restore of a checkpoint declares
  a rollback: the steps after the checkpoint are lost.
- A step may be applied without being acknowledged: its worker was killed, or the answer was lost.
  So the updates on a ps are at least the acknowledged ones, and at most all that were tried.
"""

from __future__ import annotations

import collections
import statistics
from typing import Callable, Dict, List, NamedTuple, Optional

from tools.chaos import plan
from tools.chaos.history import Event

_RESTART = 3  # the exit code of a client that asks to be started again
_MINUTE_5 = 300.0
_GROWTH = 1.10
EVERY_CELL_SECONDS = 1200.0  # of a run that must have each fault in each role and phase
_SLACK = dict(memory=0.0, threads=2, files=4)  # what 10 % of a small number would not allow
_TAKE = 4


class Verdict(NamedTuple):
  """The result of a validator."""

  name: str
  problems: List[str]  # none: it holds
  facts: str  # what it has counted


class _Step(NamedTuple):
  worker: str
  tried: float
  acked: Optional[float]  # None: never
  step: Optional[int]  # the global step that was fetched
  ids: List[int]


class _Lineage(NamedTuple):
  began: float  # the restore is complete
  step: int
  counts: List[List[float]]
  path: Optional[str]


class Job:
  """The events of one job, prepared for the validators."""

  def __init__(self, events: List[Event]):
    """Reads the events of one job, in the order of time."""
    self.events = events
    self.options = self.all("job")[0]
    self.workers = self.options["workers"]
    self.steps = self._read_steps()
    self.checkpoints = self._read_checkpoints()
    self.lineages = self._read_lineages()
    self.end = self.events[-1]["t"]

  def all(self, *kinds) -> List[Event]:
    """Returns the events of these kinds."""
    return [event for event in self.events if event["event"] in kinds]

  def _read_steps(self):
    steps, pending = [], {}
    for event in self.all("try", "ack", "begin"):
      task = event["task"]
      if event["event"] != "ack":
        if task in pending:
          steps.append(_Step(task, pending.pop(task), None, None, []))
        if event["event"] == "try":
          pending[task] = event["t"]
      elif task in pending:
        steps.append(_Step(task, pending.pop(task), event["t"], event["step"], event["ids"]))
    steps += [_Step(task, tried, None, None, []) for task, tried in pending.items()]
    return sorted(steps, key=lambda step: step.tried)

  def _read_checkpoints(self):
    """Complete checkpoints, with the time `began` since which their values were read."""
    saving, found = {}, []
    for event in self.all("saving", "checkpoint"):
      if event["event"] == "saving":
        saving.setdefault(_name(event["path"]), []).append(event["t"])
      else:
        times = [t for path, each in saving.items() for t in each
                 if event["path"] == path or event["path"].startswith(path + "-")]
        found.append(dict(event, began=max(times) if times else None))
    return found

  def _read_lineages(self):
    zeros = [[0.0] * self.workers for _ in range(self.options["ps"])]
    found = [_Lineage(self.events[0]["t"], 0, zeros, None)]
    for event in self.all("restored", "initialised"):
      if event["event"] == "initialised":
        if len(found) > 1 or self._stepped_before(event["t"]):
          found.append(_Lineage(event["t"], 0, zeros, None))
        continue
      known = [each for each in self.checkpoints
               if each["path"] == event["path"] and each["t"] < event["t"]]
      if known:
        last = known[-1]
        found.append(_Lineage(event["t"], last["step"], last["counts"], last["path"]))
      else:  # a restore of what the watcher has not seen: nothing is known of it
        found.append(_Lineage(event["t"], -1, zeros, event["path"]))
    return found

  def _stepped_before(self, t):
    return any(step.acked is not None and step.acked < t for step in self.steps)

  def lineage_at(self, t: float) -> int:
    """Returns the index of the lineage at a time."""
    return max(index for index, each in enumerate(self.lineages) if each.began <= t or index == 0)


def _name(path):
  return path


def check_updates(job: Job) -> Verdict:
  """Updates applied on each ps = acknowledged steps + retries that were applied."""
  if job.options["mode"] != "async":
    return Verdict("updates", [] if job.checkpoints else ["there is no checkpoint"],
                   "not judged: `synchronous` compares each update")
  problems, last = [], None
  for checkpoint in job.checkpoints:
    if checkpoint["began"] is None:
      continue
    index = job.lineage_at(checkpoint["began"])
    lineage = job.lineages[index]
    if lineage.step < 0:
      continue
    last = checkpoint
    for worker in range(job.workers):
      low, high = _bounds(job, index, "worker %d" % worker, checkpoint)
      for ps, counts in enumerate(checkpoint["counts"]):
        base = lineage.counts[ps][worker]
        if not low <= counts[worker] - base <= high:
          problems.append(
            "%s: ps %d has applied %g updates of worker %d since %s, which has %d acknowledged "
            "steps and %d tried ones" % (
              checkpoint["path"], ps, counts[worker] - base, worker,
              lineage.path or "the start", low, high))
  acked = sum(1 for step in job.steps if step.acked is not None)
  facts = "%d steps acknowledged, %d tried without an answer, %d checkpoints compared" % (
    acked, len(job.steps) - acked, len(job.checkpoints))
  if last is not None:
    facts += "; the last one has %s updates on the ps" % " and ".join(
      "%g" % sum(counts) for counts in last["counts"])
  if not job.checkpoints:
    problems.append("there is no checkpoint")
  return Verdict("updates", problems, facts)


def _bounds(job, index, worker, checkpoint):
  """The least and the most updates of a worker between a restore and a checkpoint."""
  began = job.lineages[index].began if index else 0.0
  low = high = 0
  own = [step for step in job.steps if step.worker == worker]
  for number, step in enumerate(own):
    if step.tried >= began:
      low += step.acked is not None and step.acked <= checkpoint["began"]
      high += step.tried <= checkpoint["t"]
    elif step.acked is None:  # it may be under way when the restore ends
      high += number + 1 == len(own) or own[number + 1].tried >= began
    else:
      high += step.acked >= began
  return low, high


def check_global_step(job: Job) -> Verdict:
  """The global step falls only by a declared rollback to the latest checkpoint."""
  problems, lost = [], []
  for index, lineage in enumerate(job.lineages):
    end = job.lineages[index + 1].began if index + 1 < len(job.lineages) else float("inf")
    began = lineage.began if index else 0.0
    inside = [step for step in job.steps
              if step.acked is not None and began <= step.tried and step.acked < end]
    highest = lineage.step
    done = sorted(inside, key=lambda step: step.acked)
    position = 0
    for step in sorted(inside, key=lambda step: step.tried):
      while position < len(done) and done[position].acked <= step.tried:
        highest = max(highest, done[position].step)
        position += 1
      if step.step < highest:
        problems.append("%s read global step %d at %.2f, after %d was acknowledged" % (
          step.worker, step.step, step.acked, highest))
    if index:
      problems += _check_rollback(job, index, lost)
  if job.options["mode"] == "sync":
    problems += _check_after(job)
  return Verdict("global step", problems, "%d rollbacks, steps lost: %s" % (
    len(job.lineages) - 1, ", ".join(map(str, lost)) or "none"))


def _check_rollback(job, index, lost):
  lineage, before = job.lineages[index], job.lineages[index - 1]
  reached = [step.step for step in job.steps if step.acked is not None
             and step.acked < lineage.began and step.tried >= (before.began if index > 1 else 0)]
  lost.append(max(0, max(reached + [before.step]) - lineage.step))
  if lineage.step < 0:
    return ["%s was restored, which was never seen complete" % lineage.path]
  restoring = [event["t"] for event in job.all("restoring") if event["t"] < lineage.began]
  since = restoring[-1] if restoring else lineage.began
  known = [each["step"] for each in job.checkpoints
           if each["t"] < since and job.lineage_at(each["t"]) == index - 1]
  if known and known[-1] > lineage.step:
    return ["the job went back to step %d, although a checkpoint of step %d was complete" % (
      lineage.step, known[-1])]
  return []


def _check_after(job):
  """The global step after each acknowledged synchronous update, which rises by each."""
  problems, last = [], {}
  for event in job.all("at", "restored", "initialised"):
    if event["event"] != "at":
      last = {}
    elif event["step"] <= last.get(event["task"], -1):
      problems.append("%s read global step %d after an update, and %d before it" % (
        event["task"], event["step"], last[event["task"]]))
    if event["event"] == "at":
      last[event["task"]] = event["step"]
  return problems


def check_examples(job: Job) -> Verdict:
  """Every example was trained on at least once, in updates that no rollback has taken back."""
  if job.options["mode"] != "async":
    return Verdict("examples", [], "not judged: without leases a killed worker begins anew")
  windows, index, until = [], len(job.lineages) - 1, float("inf")
  while True:
    lineage = job.lineages[index]
    windows.append((lineage.began if index else 0.0, until))
    if not index or lineage.path is None:
      break
    saved = [each for each in job.checkpoints
             if each["path"] == lineage.path and each["t"] < lineage.began][-1:]
    if not saved:
      break
    until = saved[0]["t"]
    index = job.lineage_at(saved[0]["began"] or saved[0]["t"])
  kept = collections.Counter()
  for step in job.steps:
    if step.acked is not None and any(a <= step.acked and step.tried <= b for a, b in windows):
      kept.update(step.ids)
  missing = [number for number in range(job.options["examples"]) if number not in kept]
  drawn = collections.Counter()
  for event in job.all("drawn"):
    drawn.update(event["ids"])
  problems = []
  if missing:
    problems.append("%d of %d examples are in no update, such as %s" % (
      len(missing), job.options["examples"], ", ".join(map(str, missing[:8]))))
  return Verdict("examples", problems, "%d examples, each in an update; %d drawn again" % (
    len(kept), sum(drawn.values()) - len(drawn)))


def check_synchronous(job: Job) -> Verdict:
  """Each synchronous update is made of one gradient of each replica."""
  if job.options["mode"] != "sync":
    return Verdict("synchronous", [], "not judged: the updates are asynchronous")
  problems = []
  for checkpoint in job.checkpoints:
    for ps, counts in enumerate(checkpoint["counts"]):
      if any(count != checkpoint["step"] for count in counts):
        problems.append("%s: ps %d has %s gradients of the workers in %d updates" % (
          checkpoint["path"], ps, counts, checkpoint["step"]))
  final, wanted = job.checkpoints[-1]["step"] if job.checkpoints else 0, job.options["steps"]
  ended = [event["t"] for event in job.all("ending") if event["task"] == "worker 0"]
  for event in job.all("restored"):
    # A ps that is killed before the last checkpoint takes the steps since the one before it.
    if ended and event["t"] > ended[-1]:
      wanted = int(event["path"].rpartition("-")[2])
  if final != wanted:
    problems.append("the last checkpoint has step %d of %d" % (final, wanted))
  return Verdict("synchronous", problems, "%d checkpoints, %d updates of %d gradients each" % (
    len(job.checkpoints), final, job.workers))


def check_queue(job: Job) -> Verdict:
  """Each element of the queue is taken once; lost are only those of a killed ps or consumer."""
  tried, put, taken, outstanding = {}, {}, collections.Counter(), 0
  asked = {}
  for event in job.all("put_try", "put_ack", "get_try", "get_ack", "begin"):
    task, kind = event["task"], event["event"]
    if kind == "put_try":
      tried.update((number, event["t"]) for number in event["ids"])
    elif kind == "put_ack":
      put.update((number, event["t"]) for number in event["ids"])
    elif kind == "get_try":
      asked[task] = event["count"]
    elif kind == "get_ack":
      asked.pop(task, None)
      taken.update(event["ids"])
    else:
      outstanding += asked.pop(task, 0)
  outstanding += sum(asked.values())
  problems = []
  twice = [number for number, count in taken.items() if count > 1]
  if twice:
    problems.append("%d elements were taken more than once, such as %s" % (
      len(twice), twice[:5]))
  strange = [number for number in taken if number not in tried]
  if strange:
    problems.append("%d elements were taken that nobody has put" % len(strange))
  kills = [event["t"] for event in job.all("inject")
           if event["fault"] == "kill" and "ps 0" in event["targets"]]
  missing = [number for number in put if number not in taken]
  with_ps = [number for number in missing if any(tried[number] < kill for kill in kills)]
  unexplained = len(missing) - len(with_ps) - outstanding
  if unexplained > 0:
    problems.append("%d elements are lost, and consumers that were killed or got no answer had "
                    "asked for %d" % (len(missing) - len(with_ps), outstanding))
  if not taken:
    problems.append("no element was taken")
  return Verdict("queue", problems, "%d elements put, %d taken, %d lost with a ps, %d lost with a "
                 "consumer" % (len(put), len(taken), len(with_ps), len(missing) - len(with_ps)))


def check_waits(job: Job) -> Verdict:
  """The job recovers from each injection, and ends, within the limit."""
  limit, problems, seconds = job.options["wait_limit"], [], []
  injected = {event["number"]: event for event in job.all("inject")}
  recovered = {event["number"]: event for event in job.all("recovered")}
  for number, event in injected.items():
    found = recovered.get(number)
    if found is None:
      problems.append("nothing is known of the job after injection %d" % number)
    elif found["seconds"] is not None:
      seconds.append(found["seconds"])
    elif "next" not in found and event["phase"] != plan.ENDING:  # how the end goes is seen below
      problems.append("%s made no step within %g s after injection %d (%s of %s, %s)" % (
        ", ".join(found["late"]) or "the job", limit, number, event["fault"],
        ", ".join(event["targets"]), event["phase"]))
  if not injected:
    problems.append("the job never began to train, or nothing was injected")
  acks = [step.acked for step in job.steps if step.acked is not None]
  ends = [event["t"] for event in job.all("exit")
          if event["of"].startswith(("ps", "worker")) and not event["killed"]]
  after = max(ends) - max(acks) if ends and acks else None
  for event in job.all("end"):
    if event["given_up"]:
      problems.append("the job did not end: no step for %g s, and %s still there" % (
        limit, ", ".join(event["given_up"])))
  if after is not None and after > limit:
    problems.append("the last task ended %.1f s after the last step" % after)
  return Verdict("waits", problems, "%d recoveries%s%s" % (
    len(seconds), ", median %.1f s, worst %.1f s" % (
      statistics.median(seconds), max(seconds)) if seconds else "",
    ", the end %.1f s after the last step" % after if after is not None else ""))


def check_exits(job: Job) -> Verdict:
  """Who was not killed ends with 0, and not before the work is done."""
  problems, counts, last = [], collections.Counter(), {}
  over = [event["t"] for event in job.all("gate")] or [float("inf")]
  for event in job.all("exit"):
    task = event["of"]
    if task == "watcher":
      continue
    last[task] = event
    counts[event["code"]] += 1
    is_client = not task.startswith(("ps", "worker"))
    if event["given_up"]:
      problems.append("%s did not end" % task)
    elif event["killed"]:
      if event["code"] not in (-9, 0):
        problems.append("%s was killed and ended with %d" % (task, event["code"]))
    elif is_client and event["code"] in (0, _RESTART):
      pass
    elif event["code"] != 0:
      problems.append("%s ended with %d" % (task, event["code"]))
    elif event["t"] < over[0]:
      problems.append("%s ended with 0 before its work was done" % task)
  started = {event["of"] for event in job.all("start")} - {"watcher"}
  problems += ["%s has no end" % task for task in sorted(started - set(last))]
  return Verdict("exit codes", problems, ", ".join(
    "%d with %d" % (count, code) for code, count in sorted(counts.items())))


def check_usage(job: Job) -> Verdict:
  """Memory, threads and files at the end are within 10 % of those in minute 5 of the process."""
  over = (job.all("stop") or [job.events[-1]])[0]["t"]
  samples: Dict[tuple, List[Event]] = {}
  for event in job.all("usage"):
    samples.setdefault((event["of"], event["pid"]), []).append(event)
  problems, facts = [], []
  for (task, _), found in sorted(samples.items()):
    # A young process still grows: TensorFlow keeps something of each of the first lost connections.
    minute_5 = found[0]["t"] + _MINUTE_5
    first = [each for each in found if abs(each["t"] - minute_5) < 30.0]
    last = [each for each in found if over - 60.0 < each["t"] <= over]
    if not first or not last or over < minute_5 + 0.5 * _MINUTE_5 or task == "watcher":
      continue
    for name in ("memory", "threads", "files"):
      before = statistics.median(each[name] for each in first)
      after = statistics.median(each[name] for each in last)
      facts.append("%s %s %g to %g" % (task, name, before, after))
      if after > _GROWTH * before + _SLACK[name]:
        problems.append("%s: %s grew from %g in its minute 5 to %g" % (task, name, before, after))
  return Verdict("usage", problems, "; ".join(facts) or
                 "not judged: no process lived for %.1f minutes, until the end" % (
                   1.5 * _MINUTE_5 / 60))


VALIDATORS: List[Callable[[Job], Verdict]] = [
  check_updates, check_global_step, check_examples, check_synchronous, check_queue, check_waits,
  check_exits, check_usage]


def check_cells(jobs: List[Job]) -> Verdict:
  """Each combination of fault, role and phase was injected."""
  counts = cell_counts(jobs)
  missing = [" x ".join(cell) for cell, count in counts.items() if not count]
  return Verdict("every cell", ["never injected: %s" % ", ".join(missing)] if missing else [],
                 "%d injections" % sum(counts.values()))


def cell_counts(jobs: List[Job]) -> Dict[tuple, int]:
  """Returns the injections by (fault, role, phase), with zeros for what was possible."""
  counts = collections.OrderedDict()
  for job in jobs:
    for cell in job.options["cells"]:
      counts.setdefault(tuple(cell), 0)
  for job in jobs:
    for event in job.all("inject"):
      cell = event["fault"], event["role"], event["phase"]
      counts[cell] = counts.get(cell, 0) + 1
  return counts


def jobs_of(events: List[Event]) -> List[Job]:
  """Returns the jobs of a history; ValueError if it has none."""
  names = []
  for event in events:
    if event["event"] == "job":
      names.append(event["job"])
  if not names:
    raise ValueError("the history has no job")
  return [Job([event for event in events if event["job"] == name]) for name in names]


def check(jobs: List[Job]) -> Dict[str, List[Verdict]]:
  """Returns the verdicts by job; a run that is long enough for each combination must have each."""
  verdicts = collections.OrderedDict(
    (job.options["job"], [validate(job) for validate in VALIDATORS]) for job in jobs)
  if sum(job.options["seconds"] for job in jobs) >= EVERY_CELL_SECONDS:
    verdicts["all"] = [check_cells(jobs)]
  return verdicts
