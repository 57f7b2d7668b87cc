"""The report of a history: what was injected, how long the job needed, and the verdicts."""

from __future__ import annotations

import shlex
import statistics
import sys

from tools.chaos import history, validators
from tools.chaos.plan import ENDING, PHASES, ROLES, WAIT_LIMIT
from tools.chaos.worlds import WORLDS

_SHOWN = 5  # problems of a validator


def print_report(path: str, out=None) -> int:
  """Prints the report of a history; returns 0 if every validator holds, else 1."""
  jobs = validators.jobs_of(history.read_history(path))
  verdicts = validators.check(jobs)
  for line in lines(path, jobs, verdicts):
    print(line, file=out or sys.stdout)
  return int(any(each.problems for found in verdicts.values() for each in found))


def lines(path, jobs, verdicts):
  """Yields the lines of a report, in Markdown."""
  options = jobs[0].options
  version = next((event.get("tensorflow", "?") for event in jobs[0].all("begin")), "?")
  yield "# A chaos run: seed %d, %g seconds, %s on TensorFlow %s" % (
    options["seed"], sum(job.options["seconds"] for job in jobs), options["kind"], version)
  yield ""
  yield "Its world: %s." % WORLDS[options.get("world", "one")].text
  yield ""
  yield "Run it again: `%s`" % command(jobs)
  yield "Check its history again: `python -m tools.chaos check %s`" % shlex.quote(path)
  yield ""
  yield from _cells(jobs)
  yield ""
  yield from _recoveries(jobs)
  yield ""
  yield "| job | validator | verdict | counted |"
  yield "|---|---|---|---|"
  for name, found in verdicts.items():
    for verdict in found:
      yield "| %s | %s | %s | %s |" % (name, verdict.name, _word(verdict), verdict.facts)
  for name, found in verdicts.items():
    for verdict in found:
      for problem in verdict.problems[:_SHOWN]:
        yield "- %s, %s: %s" % (name, verdict.name, problem)
      if len(verdict.problems) > _SHOWN:
        yield "- %s, %s: %d more" % (name, verdict.name, len(verdict.problems) - _SHOWN)


def _word(verdict):
  if verdict.problems:
    return "**fails**"
  return "–" if verdict.facts.startswith("not judged") else "holds"


def command(jobs) -> str:
  """Returns the command that makes the same run again."""
  options = jobs[0].options
  words = ["python -m tools.chaos run", "--seconds=%g" % sum(
    job.options["seconds"] for job in jobs), "--seed=%d" % options["seed"]]
  if options["kind"] != "tf1ps":
    words.append("--kind=" + options["kind"])
  modes = ",".join(job.options["mode"] for job in jobs)
  if modes != "async,sync":
    words.append("--modes=" + modes)
  if options["breaks"]:
    words.append("--breaks=" + ",".join(options["breaks"]))
  if options.get("faults") is not None:  # older histories do not say
    words.append("--faults=" + ",".join(options["faults"]))
  words.append("--world=" + options.get("world", "one"))
  if options["wait_limit"] != WAIT_LIMIT:
    words.append("--wait_limit=%g" % options["wait_limit"])
  return " ".join(words)


def _cells(jobs):
  counts, columns = validators.cell_counts(jobs), [*PHASES, ENDING]
  yield "%d injections, by fault, role and phase:" % sum(counts.values())
  yield ""
  yield "| fault | %s | other |" % " | ".join(
    "%s, %s" % (role, phase) for role in ROLES for phase in columns)
  yield "|---" * (2 + len(ROLES) * len(columns)) + "|"
  for fault in dict.fromkeys(cell[0] for cell in counts):
    others = sum(count for cell, count in counts.items()
                 if cell[0] == fault and cell[1] not in ROLES)
    yield "| %s | %s | %d |" % (fault, " | ".join(
      str(counts.get((fault, role, phase), "")) for role in ROLES for phase in columns), others)


def _recoveries(jobs):
  by_fault = {}
  for job in jobs:
    faults = {event["number"]: event["fault"] for event in job.all("inject")}
    for event in job.all("recovered"):
      if event["seconds"] is not None:
        by_fault.setdefault(faults[event["number"]], []).append(event["seconds"])
  yield "Seconds from the end of a fault until all workers have made a step:"
  yield ""
  yield "| fault | recoveries | median | worst |"
  yield "|---|---|---|---|"
  for fault, seconds in by_fault.items():
    yield "| %s | %d | %.1f | %.1f |" % (
      fault, len(seconds), statistics.median(seconds), max(seconds))
