"""What becomes of legacy programs: on stock TensorFlow, and by tf1ps without a change in them.

    python -m benchmarks.legacy_programs [NAME ...] [--legacy_python PYTHON] [--limit 40]
      [--ways stock,run,import]

The programs under tests/legacy/programs/ are run as a ps and two workers, in separate processes.
Estimators, and examples/flats.py, also have a chief and an evaluator. The benchmark prints a table:
a line for each program, a column for each TensorFlow and way. A cell says which tasks have ended,
and what was lost. A job is given up when, for `--limit` seconds, none of its tasks has ended or
printed a line.

A way is `stock` (on TensorFlow 2 with the two lines that every TensorFlow 1 script needs there),
`run` (`tf1ps-run` with the unchanged file) or `import` (`import tf1ps.v1 as tf`).
"""
from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional

import numpy as np

from benchmarks import systems
from tf1ps.launch import find_free_addresses

ESTIMATOR = os.path.join(systems.ROOT, "examples", "flats.py")
FOLDER = os.path.join(systems.ROOT, "tests", "legacy", "programs")
MODEL = "model"  # the folder of checkpoints, in a job's folder
_EXAMPLE = "flats"  # the program in ESTIMATOR
NEVER = None  # the exit code of a task that was given up
_COUNTS = re.compile(r"(\d+) local steps, global step (\d+)")
_SAVED = re.compile(r'^model_checkpoint_path: ".*-(\d+)"', re.MULTILINE)
_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception): .*)", re.MULTILINE)


class Program(NamedTuple):
  """A legacy program, and its expected end if nothing goes wrong."""

  name: str
  folder_flag: Optional[str]  # its flag for checkpoints; None: it saves no checkpoints
  steps: int  # the requested number of global steps
  synchronous: bool = False
  evaluator: bool = False  # whether a fourth task follows the checkpoints
  rows: int = 0  # the rows that each worker must read
  workers: int = 2  # the number of workers that count steps
  mnist: bool = False  # whether it reads --data_dir
  estimator: bool = False  # whether TF_CONFIG says what each task is
  chief: bool = True  # for an estimator: whether TF_CONFIG names a chief
  only_newer: bool = False  # whether it needs no tf1ps on TensorFlow 1.15


PROGRAMS = {program.name: program for program in (
  Program("supervisor_async", "train_dir", 200),
  Program("supervisor_sync", "checkpoint_dir", 100, synchronous=True),
  Program("float_step", "train_dir", 100, synchronous=True),
  Program("actor_critic", "log_dir", 400),
  Program("sync_barrier", "train_dir", 120),
  Program("managed_session", "logdir", 200),
  Program("done_queues", "model_dir", 150),
  Program("queue_runners", "train_dir", 160, rows=800),
  Program("slim_train", "train_dir", 150, workers=0),
  Program("contrib_layers", "model_dir", 150, mnist=True),
  Program("before_1_0", "log_dir", 100, synchronous=True),
  Program("moving_losses", "train_dir", 150),
  Program("plain_session", None, 200),
  Program("in_graph", None, 100, workers=1),
  Program("evaluator", "logdir", 200, evaluator=True),
  Program("canned_keras", "model_dir", 300, workers=0, evaluator=True, estimator=True),
  Program("learn_experiment", "model_dir", 300, workers=0, evaluator=True, estimator=True,
          chief=False, only_newer=True),
  Program(_EXAMPLE, "model_dir", 600, workers=0, evaluator=True, estimator=True),
)}


class Outcome(NamedTuple):
  """The result of a job of a legacy program."""

  codes: Dict[str, Optional[int]]  # the exit code of each task, "worker 0"; NEVER if given up
  said: Dict[str, str]  # the output of each task
  saved: Optional[int]  # the global step of the last checkpoint


def path_of(program: Program) -> str:
  """The program's file."""
  if program.name == _EXAMPLE:
    return ESTIMATOR
  return os.path.join(FOLDER, program.name + ".py")


def with_stock_imports(source: str) -> str:
  """Returns the program's text; the two lines that TensorFlow 2 needs replace the import line."""
  return source.replace(
    "\nimport tensorflow as tf\n",
    "\nimport tensorflow.compat.v1 as tf; tf.disable_v2_behavior()\n")


def with_our_imports(source: str) -> str:
  """Returns the program's text, in which tf1ps.v1 replaces tensorflow in the import lines."""
  return re.sub(r"^(import|from) tensorflow\b", r"\1 tf1ps.v1", source, flags=re.MULTILINE)


def arguments(program: Program, folder: str) -> Dict[str, List[str]]:
  """The arguments of each task of a job on free ports, by the task's name.

  All tasks of an estimator have the same arguments; `environments` says what each task is.

  Args:
    program: the program.
    folder: the folder for the program's checkpoints and input data.
  """
  if program.estimator:
    flags = ["--model_dir=" + os.path.join(folder, MODEL), "--max_steps=%d" % program.steps]
    if program.name == _EXAMPLE:
      flags.append("--data=" + os.path.join(os.path.dirname(ESTIMATOR), "data", "flats.csv"))
    names = ["ps 0"] + ["chief 0"] * program.chief + ["worker 0", "worker 1", "evaluator 0"]
    return dict.fromkeys(names, flags)
  hosts = find_free_addresses(3)
  common = ["--ps_hosts=" + hosts[0], "--worker_hosts=" + ",".join(hosts[1:])]
  if program.folder_flag:
    common.append("--%s=%s" % (program.folder_flag, os.path.join(folder, MODEL)))
  if program.mnist:
    common.append("--data_dir=" + folder)
    write_mnist(folder)
  names = ["ps 0", "worker 0", "worker 1"] + ["eval 0"] * program.evaluator
  return {name: ["--job_name=" + name.split()[0], "--task_index=" + name.split()[1], *common]
          for name in names}


def environments(program: Program, names: Iterable[str]) -> Dict[str, Dict[str, str]]:
  """The environment variables of each task of a job, by the task's name."""
  if not program.estimator:
    return {name: {} for name in names}
  tasks = [(name, *name.split()) for name in names]
  cluster: Dict[str, List[str]] = {}
  for (_, job, _), address in zip(tasks, find_free_addresses(len(tasks))):
    if job != "evaluator":
      cluster.setdefault(job, []).append(address)
  return {name: {"TF_CONFIG": json.dumps(
    {"cluster": cluster, "task": {"type": job, "index": int(index)}})}
    for name, job, index in tasks}


def write_mnist(folder: str, count: int = 5600) -> None:
  """Writes MNIST's four files, with a few images that are easy to distinguish."""
  for part, size in (("train", count), ("t10k", 100)):
    labels = np.arange(size, dtype=np.uint8) % 10
    images = np.zeros([size, 28, 28], np.uint8)
    images[np.arange(size), 2 * labels + 4, :] = 255
    for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
      head = struct.pack(">I%dI" % values.ndim, 0x800 | values.ndim, *values.shape)
      with gzip.open(os.path.join(folder, "%s-%s-ubyte.gz" % (part, kind)), "wb", 1) as file:
        file.write(head + values.tobytes())


def last_saved(folder: str) -> Optional[int]:
  """The global step of the last checkpoint in a folder, or None."""
  path = os.path.join(folder, "checkpoint")
  if not os.path.exists(path):
    return None
  with open(path) as file:
    found = _SAVED.search(file.read())
  return int(found.group(1)) if found else None


def losses(program: Program, outcome: Outcome) -> List[str]:
  """Returns what a job whose workers have ended has lost; an empty list if nothing was lost.

  The number of steps is compared with the saved global step. In a synchronous job each worker must
  have made as many steps as there are updates: each missing step of a worker means that its
  gradient is missing in at least one update.
  """
  counts = {}
  for index in range(program.workers):
    name = "worker %d" % index
    found = _COUNTS.search(outcome.said[name])
    if not found and outcome.codes[name] is NEVER:
      continue
    if not found:
      return ["%s says nothing of its steps" % name]
    counts[name] = [int(text) for text in found.groups()]
  made = max([last for _, last in counts.values()] + [program.steps])
  found = []
  if program.synchronous:
    made = max(made, outcome.saved or 0)  # a worker may read the global step before its last update
    found += ["%s is in at most %d of %d updates" % (name, local, made)
              for name, (local, _) in counts.items() if local < made]
    found += ["%d gradients of %s for %d updates" % (local, name, made)
              for name, (local, _) in counts.items() if local > made]
  elif counts and program.rows == 0:
    made = max(made, sum(local for local, _ in counts.values()))
  if program.folder_flag and (outcome.saved is None or outcome.saved < made):
    found.append("the last checkpoint has step %s of %d" % (outcome.saved, made))
  for index in range(2 if program.rows else 0):
    rows = re.search(r"(\d+) rows,", outcome.said["worker %d" % index])
    if not rows or int(rows.group(1)) != program.rows:
      found.append("worker %d read %s of %d rows" % (
        index, rows.group(1) if rows else "?", program.rows))
  if program.evaluator:
    said = outcome.said["evaluator 0" if program.estimator else "eval 0"]
    steps = [int(step) for step in re.findall(r"(?:evaluated|for global) step (\d+)", said)]
    # The evaluator leaves at a checkpoint of the requested steps; the job may save another
    # checkpoint when its workers end.
    if not steps or steps[-1] < program.steps:
      found.append("the last evaluation is of step %s of %d" % (
        steps[-1] if steps else "-", program.steps))
  return found


def verdict(program: Program, outcome: Outcome) -> str:
  """Returns a cell of the table."""
  never = [name for name, code in outcome.codes.items() if code is NEVER]
  failed = [name for name, code in outcome.codes.items() if code]
  if failed:
    errors = _ERROR.findall(outcome.said[failed[-1]])
    said = errors[-1].split(";")[0][:90] if errors else "exit %s" % outcome.codes[failed[-1]]
    parts = ["%s: %s" % (", ".join(failed) if len(failed) < len(outcome.codes) else "all", said)]
  else:
    parts = [] if never else ["ends"]
  if never:
    parts.append("%s never end%s" % (", ".join(never), "s" * (len(never) == 1)))
  workers = [name for name in outcome.codes if name.startswith("worker")]
  if not any(outcome.codes[name] for name in workers):
    parts += losses(program, outcome)
  return "; ".join(parts)


class _Job:
  """The tasks of one job, as processes."""

  def __init__(self, commands: Dict[str, List[str]], environs: Dict[str, Dict[str, str]],
               folder: str, python: str):
    self._news = time.monotonic()
    self.said = {name: "" for name in commands}
    self.processes = {}
    environ = dict(systems.environment(python), PYTHONUNBUFFERED="1")
    for name, command in commands.items():
      self.processes[name] = process = subprocess.Popen(
        command, cwd=folder, env=dict(environ, **environs[name]), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
        errors="replace")
      threading.Thread(target=self._read, args=(name, process.stdout), daemon=True).start()

  def _read(self, name, stream):
    for line in stream:
      self.said[name] += line
      self._news = time.monotonic()

  def wait(self, limit: float) -> Dict[str, Optional[int]]:
    """Waits until all tasks have ended; kills the others after `limit` seconds without news."""
    running = len(self.processes)
    begin = time.monotonic()
    while running and time.monotonic() - self._news < limit and (
        time.monotonic() - begin < 6 * limit):
      time.sleep(0.1)
      left = sum(process.poll() is None for process in self.processes.values())
      if left < running:
        running, self._news = left, time.monotonic()
    codes = {name: process.poll() for name, process in self.processes.items()}
    for process in self.processes.values():
      process.kill()
      process.wait()
    return codes


def run(program: Program, way: str, python: str, limit: float) -> Outcome:
  """Runs a job to its end, or until it is given up."""
  folder = tempfile.mkdtemp(prefix="tf1ps-legacy-")
  try:
    path = os.path.join(folder, program.name + ".py")
    with open(path_of(program)) as file:
      source = file.read()
    edits: Dict[str, Callable[[str], str]] = {"import": with_our_imports}
    if way == "stock" and not _is_1_15(python):
      edits["stock"] = with_stock_imports
    with open(path, "w") as file:
      file.write(edits.get(way, lambda text: text)(source))
    start = [python] + ["-m", "tf1ps", "run"] * (way == "run") + [path]
    words = arguments(program, folder)
    job = _Job({name: start + words[name] for name in words}, environments(program, words),
               folder, python)
    codes = job.wait(limit)
    return Outcome(codes, job.said, last_saved(os.path.join(folder, MODEL)))
  finally:
    shutil.rmtree(folder, ignore_errors=True)


def _is_1_15(python: str) -> bool:
  return _version(python).startswith("1.")


def _version(python: str) -> str:
  return subprocess.run(
    [python, "-c", "import tensorflow as tf; print(tf.__version__)"], check=True,
    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=systems.environment(python),
    universal_newlines=True).stdout.split()[-1]


def main() -> None:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("names", nargs="*", metavar="NAME", help="programs (all)")
  parser.add_argument("--legacy_python", default="", help="a Python 3.7 with TensorFlow 1.15")
  parser.add_argument("--ways", default="stock,run", help="of stock, run and import")
  parser.add_argument("--limit", type=float, default=40.0, help="seconds without news")
  parser.add_argument("--verbose", action="store_true", help="prints what the tasks say, too")
  args = parser.parse_args()
  pythons = ([args.legacy_python] if args.legacy_python else []) + [sys.executable]
  columns = [(way, python) for way in args.ways.split(",") for python in pythons]
  titles = {"stock": "TensorFlow %s", "run": "tf1ps-run, %s", "import": "import tf1ps.v1, %s"}
  print("| program | %s |" % " | ".join(titles[way] % _version(p) for way, p in columns))
  print("|---" * (1 + len(columns)) + "|", flush=True)
  for name in args.names or list(PROGRAMS):
    cells = []
    for way, python in columns:
      outcome = run(PROGRAMS[name], way, python, args.limit)
      cells.append(verdict(PROGRAMS[name], outcome).replace("|", "\\|"))
      if args.verbose:
        for task, text in outcome.said.items():
          print("--- %s, exit %s\n%s" % (task, outcome.codes[task], text), file=sys.stderr)
    print("| %s | %s |" % (name, " | ".join(cells)), flush=True)


if __name__ == "__main__":
  main()
