"""tf1ps-tune: measures which flags make a program's steps fast, and prints the flags to use.

It measures the jobs that tf1ps-local would start with the same flags. The jobs take turns
(launch/trials.py): first a job with the user's flags and a job for each option, then jobs for the
combinations of the options that help. No job saves anything where the user's jobs would save.
"""

from __future__ import annotations

import functools
import json
import os
import time
from typing import List, Sequence

from absl import flags

from tf1ps.cli import app, links, local
from tf1ps.cli import tune_search as search
from tf1ps.compat import SCREEN_VARIABLE, TIMING, temporary_directory
from tf1ps.training import (
  AUTO,
  BETWEEN_GRAPH,
  BY_NAME,
  LOG_JSON,
  Options,
  check_options,
  of_program,
)

FLAGS = flags.FLAGS
_SUMMARY = ("tries thread counts, steps per execution, wire types and overlap on "
            "a program, with the processes of a local cluster, and prints the flags to use. It "
            "takes the flags of tf1ps-local.")
# The groups of flags that a measured job gets. They exclude the user's end, files and limits.
_KEPT = ("The program", "The number of tasks", "The local cluster", "Replication", "Training",
         "Transfer", "Threads and GPUs", "Links")
_DROPPED = ("steps", "epochs", "examples", "evaluator", "restart", "log_dir")
_FOREVER = 10 ** 9  # steps or seconds
_ROUNDS, _LAST_ROUNDS = 5, 9  # the rounds of the single options, and of the combinations
_TURN = 1.0  # seconds
_FIRST_PART = 0.6  # the part of the time for the single options
_LEAST_ROUNDS = 2  # the start of the jobs leaves time for this number of rounds
_TURN_TAKES = 1.5  # the seconds of a turn, including the change of jobs
_LIMITS = ["--steps=%d" % _FOREVER, "--heartbeat_timeout=%d" % _FOREVER, "--stall_after=0",
           "--start_timeout=%d" % _FOREVER, "--verbosity=warning"]
# A job that waits for its turn answers no ping, and no one reads its progress.
_ENVIRONMENT = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=2147483647",
                SCREEN_VARIABLE: None}


def run(argv) -> int:
  """Tunes a program; returns the exit code."""
  argv = list(argv)  # app.run names the program in it
  return app.run("tune", _SUMMARY, argv,
                 lambda program: _tune(FLAGS.read_flags_from_files(argv)), lazy=True)


def _tune(argv) -> int:
  began = time.monotonic()
  local.num_ps()
  if FLAGS.dry_run:
    raise app.UsageError("tf1ps-tune measures jobs: call tf1ps-local for a --dry_run")
  if FLAGS.tls_dir is not None:
    links.check_launcher()
  if FLAGS.num_workers < 1:
    raise app.UsageError("--num_workers=%d: a job needs at least one worker" % FLAGS.num_workers)
  options = _options()
  candidates = [search.Candidate(())] + search.single_candidates(
    options, tries_threads=FLAGS.threads.inter_op is None)
  if FLAGS.log_format != LOG_JSON:
    print("tf1ps-tune: tries %d options and then their combinations, for %d s at most. Stop other "
          "work on this machine meanwhile; its load is %.1f now." % (
            len(candidates) - 1, TIMING.tuning_limit, os.getloadavg()[0]), flush=True)
  try:
    results, examples, lost = measure(
      _job_flags(local.with_defaults(argv)), options, candidates, began + TIMING.tuning_limit)
  finally:
    with temporary_directory("tune"):  # removes the directories of chiefs that were killed
      pass
  if FLAGS.log_format == LOG_JSON:
    print(json.dumps(search.as_json(results, examples, lost)))
    return 0 if results else 1
  for name, reason in lost.items():
    print("tf1ps-tune: not measured: %s: %s" % (name, reason))
  if not results:
    app.last_line("tf1ps-tune: the job with your flags could not be measured", 1)
    return 1
  print(search.table(results, examples))
  same, staler = search.best_flags(results)
  print("use: %s (%.2f times)" % (" ".join(same.candidate.flags) or "your flags as they are",
                                  same.ratio))
  if staler is not None:
    print("or, with staler gradients: %s (%.2f times)" % (
      " ".join(staler.candidate.flags), staler.ratio))
  app.last_line("tf1ps-tune: %.0f s" % (time.monotonic() - began), 0)
  return 0


def _options() -> Options:
  """The options of the measured jobs; raises ValueError if they cannot work together."""
  options = Options(**{
    name: getattr(FLAGS, name) for name in Options._fields
    if name in BY_NAME and BY_NAME[name].group in _KEPT})._replace(
      steps=_FOREVER, epochs=None, examples=None)
  check_options(options)
  return options


def _job_flags(argv: Sequence[str]) -> List[str]:
  """The user's flags that a measured job also gets."""
  ours = {option.name: option for option in of_program("tune")}
  return [text for name, texts in local.arguments(argv)
          if name not in ours or ours[name].group in _KEPT and name not in _DROPPED
          for text in texts]


def measure(argv: Sequence[str], options: Options, candidates: Sequence[search.Candidate],
            until: float, also: Sequence[search.Candidate] = ()):
  """Measures candidates, then the combinations of those that help.

  Args:
    argv: the flags of each job.
    options: the same flags, as `Options`.
    candidates: the candidates; the first has only the user's flags.
    until: the end of the measurement, by `time.monotonic`.
    also: candidates to measure together with the combinations.

  Returns:
    The `search.Result`s, or [] if the user's flags could not be measured; the number of examples
    after which the losses are taken; and {name: reason} of the candidates that were not measured.
  """
  from tf1ps.launch import Trials

  with temporary_directory("tune") as folder, Trials(
      ("tensorflow.compat.v1", "tf1ps.cli.preload")) as trials:
    begin = time.monotonic()
    middle = begin + _FIRST_PART * (until - begin)
    first = _stage(trials, argv, options, folder, candidates, _ROUNDS, middle, _FIRST_PART)
    winners = search.best_of_each(first)
    combined = search.combinations(winners, first) + list(also)
    names = {winner.candidate.name for winner in winners} | {candidates[0].name}
    if combined and first:
      trials.forget([candidate.name for candidate in candidates if candidate.name not in names])
      kept = [candidate for candidate in candidates if candidate.name in names]
      second = _stage(trials, argv, options, folder, kept + combined, _LAST_ROUNDS,
                      until, 1.0 - _FIRST_PART)
      measured = {result.candidate.name for result in second}
      first = second + [result for result in first if result.candidate.name not in measured]
    return (*_with_losses(trials, first), trials.lost)


def _stage(trials, argv, options, folder, candidates, rounds, until, part) -> List[search.Result]:
  """Measures candidates in a part of the whole time; returns their results, without losses."""
  now = time.monotonic()
  ready_until = max((now + until) / 2, until - _LEAST_ROUNDS * _TURN_TAKES * len(candidates))
  new = [candidate for candidate in candidates if candidate.name not in trials.rates]
  trials.start([functools.partial(_trial, argv, options, folder, candidate) for candidate in new],
               ready_until)
  enough = enough_seconds(
    len(new), len(candidates), trials.start_seconds or 2 * (ready_until - now), part)
  for candidate in new:
    if candidate.name in trials.late:
      trials.lost[candidate.name] += "; tuning_limit=%d in TF1PS_TIMING would probably do" % enough
  names = [candidate.name for candidate in candidates]
  before = {name: len(trials.rates[name]) for name in names if name in trials.rates}
  trials.measure(names, rounds, _TURN, until)
  rates = {name: trials.rates[name][count:] for name, count in before.items()
           if name not in trials.lost}
  base = rates.get(candidates[0].name)
  if not base:
    return []
  measured = [(candidate, rates.get(candidate.name)) for candidate in candidates]
  return [search.Result(candidate, own, search.ratio_to(own, base), float("nan"))
          for candidate, own in measured if own]


def enough_seconds(new: int, count: int, start_seconds: float, part: float) -> int:
  """Returns the total seconds with which a stage has time for its starts and its rounds.

  Args:
    new: the number of jobs that the stage starts.
    count: the number of jobs that the stage measures.
    start_seconds: the seconds of each start.
    part: the stage's part of the total time.
  """
  starts = new * start_seconds
  least = min(2 * starts, starts + _LEAST_ROUNDS * _TURN_TAKES * count) / part
  return 10 * (int(least / 10) + 1)


def _with_losses(trials, results):
  """Returns the results with their losses, and the number of examples that the losses cover."""
  from tf1ps.launch import mean_loss

  runs = {result.candidate.name: trials.runs(result.candidate.name) for result in results}
  examples = min((done[-1].examples for done in runs.values()), default=0)
  return [result._replace(loss=mean_loss(runs[result.candidate.name], examples))
          for result in results], examples


def _trial(argv, options, folder, candidate):
  """Makes the job of a candidate, with its own ports."""
  from tf1ps.cluster import divide_gpus, visible_gpus
  from tf1ps.launch import Trial, find_free_addresses

  num_ps = local.num_ps()
  addresses = find_free_addresses(num_ps + FLAGS.num_workers)
  gpus = divide_gpus(visible_gpus(), FLAGS.num_workers)
  given = [*argv, *candidate.flags, *_LIMITS]
  own_steps = [int(flag.partition("=")[2]) for flag in candidate.flags
               if flag.startswith("--steps_per_execution=")]
  if options.steps_per_execution == AUTO and not own_steps:
    given.append("--steps_per_execution=1")  # "auto" would change it within the trial
  if FLAGS.gpu_memory == BY_NAME["gpu_memory"].default:
    given.append("--gpu_memory=grow")  # all jobs share the GPU memory
  tasks = local.make_tasks(
    {"ps": addresses[:num_ps], "worker": addresses[num_ps:]}, given, gpus, evaluator=False)
  name = "".join(letter if letter.isalnum() else "_" for letter in candidate.name)
  logs, tasks_of_trial = [], []
  for task in tasks:
    args = task.args
    if task.name.startswith("worker"):
      logs.append(os.path.join(folder, "%s_%s.steps" % (name, task.name.replace(" ", "_"))))
      args = (args[0], True, None, logs[-1])
    tasks_of_trial.append(task._replace(args=args, env={**task.env, **_ENVIRONMENT}))
  steps = own_steps[0] if own_steps else options.run_steps
  # In these cases all workers make each step together, so one log counts the steps.
  alone = options.is_synchronous or options.replication != BETWEEN_GRAPH
  return Trial(candidate.name, tasks_of_trial, logs[:1] if alone else logs, steps)
