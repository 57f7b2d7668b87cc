"""tf1ps-tune: measures which flags make a program's steps fast, and prints the flags to use.

The jobs that it measures are those that tf1ps-local starts with the same flags. They take turns
(launch/trials.py): the user's flags, each option by itself, then the combinations of those that
help. No job saves anything where the user's jobs would.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import List, Sequence

from absl import flags

from tf1ps.cli import app, links, local
from tf1ps.cli import tune_search as search
from tf1ps.compat import SCREEN_VARIABLE, temporary_directory
from tf1ps.training import BETWEEN_GRAPH, BY_NAME, Options, check_options, of_program

FLAGS = flags.FLAGS
_SUMMARY = ("tries thread counts, steps per execution, packing, wire types and steps in flight on "
            "a program, with the processes of a local cluster, and prints the flags to use. It "
            "takes the flags of tf1ps-local.")
# The groups of flags that a measured job gets. Its end, files and limits are not the user's.
_KEPT = ("The program", "The number of tasks", "The local cluster", "Replication", "Training",
         "Transfer", "Threads and GPUs", "Links")
_DROPPED = ("steps", "epochs", "examples", "evaluator", "restart", "max_restarts", "log_dir")
_FOREVER = 10 ** 9  # steps or seconds
_ROUNDS, _LAST_ROUNDS = 5, 9  # of the options one by one, and of the combinations
_TURN = 1.0  # seconds
_FIRST_PART = 0.6  # of the time, for the options one by one
_LEAST_ROUNDS, _TURN_TAKES = 2, 1.5  # for which the start leaves time; seconds of a turn with all
_LIMITS = ["--steps=%d" % _FOREVER, "--heartbeat_timeout=%d" % _FOREVER, "--stall_after=0",
           "--end_timeout=%d" % _FOREVER, "--start_timeout=%d" % _FOREVER, "--verbosity=warning"]
# A job that is held answers no ping, and nobody reads its progress.
_ENVIRONMENT = {"TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=2147483647",
                SCREEN_VARIABLE: None}


def run(argv) -> int:
  """Tunes a program; returns the exit code."""
  return app.run("tune", _SUMMARY, list(argv),
                 lambda program: _tune(FLAGS.read_flags_from_files(list(argv))), lazy=True)


def _tune(argv) -> int:
  began = time.monotonic()
  local.num_ps()
  if FLAGS.tls_dir is not None:
    links.check_launcher()
  if FLAGS.num_workers < 1:
    raise app.UsageError("--num_workers=%d: a job needs at least one worker" % FLAGS.num_workers)
  options = _options()
  candidates = [search.Candidate(())] + search.single_candidates(
    options, (FLAGS.inter_op_parallelism_threads, FLAGS.intra_op_parallelism_threads))
  if not FLAGS.json:
    print("tf1ps-tune: tries %d options and then their combinations, for %d s at most. Stop other "
          "work on this machine meanwhile; its load is %.1f now." % (
            len(candidates) - 1, FLAGS.seconds, os.getloadavg()[0]), flush=True)
  try:
    results, examples, lost = measure(
      _job_flags(local.with_defaults(argv)), options, candidates, began + FLAGS.seconds)
  finally:
    with temporary_directory("tune"):  # removes those of chiefs that were killed
      pass
  if FLAGS.json:
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
  options = Options(config=None, **{
    name: getattr(FLAGS, name) for name in Options._fields
    if name != "config" and BY_NAME[name].group in _KEPT})._replace(
      steps=_FOREVER, epochs=None, examples=None)
  check_options(options)
  return options


def _job_flags(argv: Sequence[str]) -> List[str]:
  """The user's flags that a measured job gets as well."""
  ours = {option.name: option for option in of_program("tune")}
  kept, position = [], 0
  while position < len(argv):
    name, width = local.argument(argv[position])
    if name not in ours or ours[name].group in _KEPT and name not in _DROPPED:
      kept += argv[position:position + width]
    position += width
  return kept


def measure(argv: Sequence[str], options: Options, candidates: Sequence[search.Candidate],
            until: float, also: Sequence[search.Candidate] = ()):
  """Measures candidates, then the combinations of those that help.

  Args:
    argv: the flags of each job.
    options: the same, as `Options`.
    candidates: the first one is the user's flags alone.
    until: the moment, as of `time.monotonic`, at which all ends.
    also: candidates to measure beside the combinations.

  Returns:
    The `search.Result`s, none if the user's flags could not be measured; the examples after which
    their losses are taken; and {name: reason} of the candidates that were not measured.
  """
  from tf1ps.launch import Trials

  with temporary_directory("tune") as folder, Trials(
      ("tensorflow.compat.v1", "tf1ps.cli.preload")) as trials:
    begin = time.monotonic()
    middle = begin + _FIRST_PART * (until - begin)
    first = _stage(trials, argv, options, folder, candidates, _ROUNDS, middle, _FIRST_PART)
    winners = search.best_of_each(first)
    combined = search.combinations(winners, first) + list(also)
    names = {one.candidate.name for one in winners} | {candidates[0].name}
    if combined and first:
      trials.forget([one.name for one in candidates if one.name not in names])
      kept = [one for one in candidates if one.name in names]
      second = _stage(trials, argv, options, folder, kept + combined, _LAST_ROUNDS,
                      until, 1.0 - _FIRST_PART)
      measured = {one.candidate.name for one in second}
      first = second + [one for one in first if one.candidate.name not in measured]
    return (*_with_losses(trials, first), trials.lost)


def _stage(trials, argv, options, folder, candidates, rounds, until, part) -> List[search.Result]:
  """Measures candidates in a part of all the time; returns their results, without losses."""
  now = time.monotonic()
  ready_until = max((now + until) / 2, until - _LEAST_ROUNDS * _TURN_TAKES * len(candidates))
  new = [one for one in candidates if one.name not in trials.rates]
  trials.start([lambda one=one: _trial(argv, options, folder, one) for one in new], ready_until)
  for one in new:
    if one.name in trials.late:
      trials.lost[one.name] += "; --seconds=%d would probably do" % enough_seconds(
        len(new), len(candidates), trials.start_seconds or 2 * (ready_until - now), part)
  names = [one.name for one in candidates]
  before = {name: len(trials.rates[name]) for name in names if name in trials.rates}
  trials.measure(names, rounds, _TURN, until)
  rates = {name: trials.rates[name][count:] for name, count in before.items()
           if name not in trials.lost}
  base = rates.get(candidates[0].name)
  if not base:
    return []
  return [search.Result(one, rates[one.name], search.ratio_to(rates[one.name], base), float("nan"))
          for one in candidates if rates.get(one.name)]


def enough_seconds(new: int, count: int, start_seconds: float, part: float) -> int:
  """Returns the --seconds that leave time for each start of a stage, and for its rounds.

  Args:
    new: the jobs that the stage starts.
    count: the jobs that it measures.
    start_seconds: of each start.
    part: of all the time that the stage has.
  """
  starts = new * start_seconds
  least = min(2 * starts, starts + _LEAST_ROUNDS * _TURN_TAKES * count) / part
  return 10 * (int(least / 10) + 1)


def _with_losses(trials, results):
  """Returns the results with their losses, and the number of examples after which they are."""
  from tf1ps.launch import mean_loss

  runs = {one.candidate.name: trials.runs(one.candidate.name) for one in results}
  examples = min((each[-1].examples for each in runs.values()), default=0)
  return [one._replace(loss=mean_loss(runs[one.candidate.name], examples))
          for one in results], examples


def _trial(argv, options, folder, candidate):
  """Makes the job of a candidate, at ports of its own."""
  from tf1ps.launch import Trial, divide_gpus, find_free_addresses, visible_gpus

  num_ps = local.num_ps()
  addresses = find_free_addresses(num_ps + FLAGS.num_workers)
  shares, _ = divide_gpus(visible_gpus(), FLAGS.num_workers)
  given = [*argv, *candidate.flags, *_LIMITS]
  if FLAGS.gpu_memory == BY_NAME["gpu_memory"].default:
    given.append("--gpu_memory=grow")  # all jobs are in memory together
  tasks = local.make_tasks(
    {"ps": addresses[:num_ps], "worker": addresses[num_ps:]}, given, shares, evaluator=False)
  name = "".join(one if one.isalnum() else "_" for one in candidate.name)
  logs, made = [], []
  for task in tasks:
    args = task.args
    if task.name.startswith("worker"):
      logs.append(os.path.join(folder, "%s_%s.steps" % (name, task.name.replace(" ", "_"))))
      args = (args[0], True, None, logs[-1])
    made.append(task._replace(args=args, env={**task.env, **_ENVIRONMENT}))
  steps = next((int(flag.partition("=")[2]) for flag in candidate.flags
                if flag.startswith("--steps_per_execution=")), options.steps_per_execution)
  alone = options.is_synchronous or options.replication != BETWEEN_GRAPH  # all make one step
  return Trial(candidate.name, made, logs[:1] if alone else logs, steps)


def main() -> None:
  """The console script."""
  sys.exit(run(sys.argv[1:]))
