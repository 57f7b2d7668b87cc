"""Runs the jobs of a chaos run: starts their processes, disturbs them, and records the history.

1. A run has one job per mode: `async`, with leased ranges of the data, and `sync`.
2. When all workers of a job make steps, the injections begin (plan.py). Each one waits until the
   job has recovered from the one before.
3. After the job's time the clients of the queue end. Then the gate opens: the workers finish what
   is left without their pauses. When the loop of a task has ended, a last injection hits the task.
4. A process that ends by itself before that is started again, as a cluster manager would do it. The
   validators judge its exit code.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from tf1ps.launch import ForkServer, LocalTask, find_free_addresses
from tools.chaos import entry, history, network, plan, worlds
from tools.chaos.plan import CLIENTS, NUM_PS, NUM_WORKERS, WAIT_LIMIT

SAVE_SECS = 4.0
HEARTBEAT_TIMEOUT = 30.0
_PAUSE = 0.25  # seconds of a step
_BATCH = 8
_LIMIT = 90.0  # seconds for what takes few
_CLIENTS_END = 60.0  # seconds for the clients of the queue to take what is left
_LAST_INJECTION = 20.0  # seconds that the data last beyond the job's time
_TICK = 0.01
_USAGE_INTERVAL = 5.0
_MOST_STARTS = 10  # of a task that ends by itself
_START_PAUSE = 1.0  # seconds until it is started again
# A long job kills these no more from minute 4 on, so that their memory can be compared.
_SPARED = {"ps 1": "ps 0", "worker 2": "worker 1"}
_SPARED_FROM, _LONG_JOB = 240.0, 450.0
_DISK = "128m"
_PORT = 2222


class RunOptions(NamedTuple):
  """The arguments of a run."""

  seconds: float
  seed: int
  history: str  # path of the file
  log_dir: str  # of the processes' output
  modes: Sequence[str] = ("async", "sync")
  kind: str = "tf1ps"  # or stock
  breaks: Sequence[str] = ()
  wait_limit: float = WAIT_LIMIT  # seconds for a job to recover from an injection
  only: Optional[Sequence[str]] = None  # faults; None: all that are possible here
  world: str = "one"  # of worlds.WORLDS; where that cannot be made, it is one


class _Process:
  """A process of a task, as the run knows it."""

  def __init__(self, process, began):
    self.process, self.began = process, began
    self.is_stopped = self.is_killed = self.has_begun = False
    self.was_reported = False

  @property
  def is_running(self):
    return self.process.exit_code is None


def run(options: RunOptions) -> None:
  """Makes a run; its history is in `options.history`."""
  for name, value in (("TF_ENABLE_ONEDNN_OPTS", "0"), ("CUDA_VISIBLE_DEVICES", "-1")):
    os.environ.setdefault(name, value)
  os.makedirs(options.log_dir, exist_ok=True)
  open(options.history, "w").close()
  folder = tempfile.mkdtemp(prefix="chaos-")
  try:
    with ForkServer(["tensorflow.compat.v1", "tf1ps.cli.preload", "tools.chaos.tasks"]) as forks:
      for mode in options.modes:
        share = {"async": 0.65, "sync": 0.35}[mode] if len(options.modes) > 1 else 1.0
        work = os.path.join(folder, mode)
        os.mkdir(work)
        with _Job(options, forks, mode, share * options.seconds, work) as job:
          job.run()
  finally:
    shutil.rmtree(folder, ignore_errors=True)


class _Job:
  """One job of a run."""

  def __init__(self, options, forks, mode, seconds, folder):
    self._options, self._forks, self._mode, self._seconds = options, forks, mode, seconds
    self._folder, self._model = folder, os.path.join(folder, "model")
    self._writer = history.Writer(options.history, mode, "run")
    self._reader = history.Reader(options.history)
    self._tasks = (["ps %d" % i for i in range(NUM_PS)]
                   + ["worker %d" % i for i in range(NUM_WORKERS)])
    self._processes: Dict[str, _Process] = {}
    self._starts: Dict[str, int] = {}
    self._due: Dict[str, float] = {}  # when a task that has ended by itself is started again
    self._acks: Dict[str, List[float]] = {}  # of each worker and client: (try, ack) times
    self._tries: Dict[str, float] = {}
    self._begins: Dict[str, float] = {}
    self._ending: Dict[str, float] = {}  # when the loop of a worker has ended
    self._saving_since: Optional[float] = None
    self._usage_at = 0.0
    self._is_over = False
    self._number = 0

  def __enter__(self):
    self._stack = contextlib.ExitStack()
    self._network = self._stack.enter_context(_network(self._tasks + list(CLIENTS)))
    self._has_disk = self._stack.enter_context(_small_disk(self._model))
    self._world, self._made = self._make_world(self._options.world)
    return self

  def _make_world(self, name):
    """Returns the name and the `worlds.Made` of the job's world, or of one, with a message."""
    tasks = self._tasks + list(CLIENTS)
    try:
      made = worlds.Made(name, self._model, self._folder, tasks)
      self._stack.callback(made.close)
      served = made.served()
      if served is not None:
        server = self._forks.start_task(
          LocalTask("the file system", entry.call, ("filesystem", "serve", *served)))
        if not self._wait(lambda: made.is_ready or server.exit_code is not None, _LIMIT) or (
            server.exit_code is not None):
          raise worlds.WorldError("a file system by FUSE is not permitted")
      return name, made
    except worlds.WorldError as error:
      print("chaos: the world is one, and not %s: %s" % (name, error), flush=True)
      return "one", worlds.Made("one", self._model, self._folder, tasks)

  def __exit__(self, *unused):
    for task in list(self._processes):
      self._kill(task)
    self._wait(lambda: not any(p.is_running for p in self._processes.values()), _LIMIT)
    self._stack.close()
    self._reader.close()
    self._writer.close()

  # The course of a job.

  def run(self) -> None:
    """Runs the job to its end."""
    self._steps = max(20, int((self._seconds + _LAST_INJECTION) / _PAUSE))
    self._examples = self._steps * NUM_WORKERS * _BATCH
    possible = [cell for cell in plan.cells(self._network is not None, self._has_disk)
                if self._options.only is None or cell[0] in self._options.only]
    self._choose_addresses()
    self._writer.write(
      "job", mode=self._mode, kind=self._options.kind, seed=self._options.seed,
      seconds=self._seconds, workers=NUM_WORKERS, ps=NUM_PS, examples=self._examples,
      steps=self._steps, wait_limit=self._options.wait_limit, save_secs=SAVE_SECS,
      heartbeat_timeout=HEARTBEAT_TIMEOUT, breaks=list(self._options.breaks),
      faults=None if self._options.only is None else list(self._options.only), world=self._world,
      cells=[list(cell) for cell in possible])
    for task in self._tasks:
      self._start(task)
    has_begun = self._wait(lambda: self._have_stepped(0.0), _LIMIT)
    for task in [*CLIENTS, "watcher"]:
      self._start(task)
    self._began = began = time.monotonic()
    chosen = plan.injections(self._options.seed, self._mode, possible)
    is_well = has_begun
    while is_well and possible and time.monotonic() < began + self._seconds:
      is_well = self._inject(next(chosen))
    self._finish(is_well)

  def _finish(self, is_well) -> None:
    """Ends the clients, then the workers and the ps; kills what does not end."""
    self._writer.write("stop")
    self._touch("stop")
    if is_well:
      self._wait(lambda: not self._is_running("producer 0"), _CLIENTS_END)
      self._touch("stop.drain")
      is_well = self._wait(lambda: not any(
        self._is_running(task) or task in self._due for task in CLIENTS), _CLIENTS_END)
    self._is_over = True
    self._writer.write("gate")
    self._touch("gate")
    moved = [time.monotonic()]

    def has_ended():
      moved.extend(ack for _, ack in [
        self._acks[task][-1] for task in self._workers if self._acks.get(task)])
      return (not any(map(self._is_running, self._tasks))
              or time.monotonic() > max(moved) + self._options.wait_limit)

    if is_well or self._have_stepped(0.0):
      last = plan.at_end(self._options.seed, self._mode, self._options.only) if is_well else None
      if last is not None:
        self._wait(lambda: has_ended() or self._is_ending(last.targets[0]), 3600.0)
        if self._is_ending(last.targets[0]):
          self._disturb_end(last)
      self._wait(has_ended, 3600.0)
    given_up = [task for task in [*self._tasks, *CLIENTS] if self._is_running(task)]
    self._writer.write("end", given_up=given_up)
    for task in given_up:
      self._kill(task, given_up=True)
    self._kill("watcher")
    self._wait(lambda: not any(p.is_running for p in self._processes.values()), _LIMIT)

  def _is_ending(self, task) -> bool:
    loop = task if task.startswith("worker") else "worker 0"
    return self._is_running(task) and self._ending.get(loop, 0.0) > self._begins.get(loop, 0.0)

  def _disturb_end(self, injection: plan.Injection) -> None:
    """Makes the injection of the job's end; the validators judge how the job ends."""
    self._number += 1
    (target,) = injection.targets
    self._writer.write(
      "inject", number=self._number, fault=injection.fault, role=injection.role,
      phase=injection.phase, targets=[target], seconds=injection.seconds)
    self._begin_fault(injection.fault, target)
    self._wait(lambda: False, injection.seconds)
    self._end_fault(injection.fault, target)
    self._writer.write("heal", number=self._number)
    self._writer.write("recovered", number=self._number, late=[], seconds=None)

  def _inject(self, injection: plan.Injection) -> bool:
    """Makes one injection; returns whether the job has recovered from it."""
    injection = self._spare(injection)
    target = injection.targets[0]
    if not self._reach(injection, target):
      return False
    self._number += 1
    number, phase = self._number, self._phase(target)
    self._writer.write(
      "inject", number=number, fault=injection.fault, role=injection.role, phase=phase,
      targets=list(injection.targets), seconds=injection.seconds)
    for task in injection.targets:
      self._begin_fault(injection.fault, task)
    self._wait(lambda: False, injection.seconds)
    for task in injection.healed:
      self._end_fault(injection.fault, task)
    healed = time.monotonic()
    self._writer.write("heal", number=number)
    return self._recover(number, healed, injection.role)

  def _recover(self, number, healed, role) -> bool:
    needed = list(self._workers)
    if role == "client":
      needed += CLIENTS
    recovered = self._wait(lambda: self._have_stepped(healed, needed), self._options.wait_limit)
    late = [task for task in needed if not self._has_stepped(task, healed)]
    self._writer.write("recovered", number=number, late=late,
                       seconds=round(time.monotonic() - healed, 2) if recovered else None)
    return recovered

  def _spare(self, injection) -> plan.Injection:
    """Takes another task instead of one that a long job kills no more."""
    target = injection.targets[0]
    is_kill = injection.fault == "kill" or injection.phase == "starting"
    is_late = time.monotonic() > self._began + _SPARED_FROM and self._seconds > _LONG_JOB
    if not (is_kill and is_late and target in _SPARED):
      return injection
    other = _SPARED[target]
    targets, healed = (
      [other] + [task for task in each if task not in (other, target)]
      for each in (injection.targets, injection.healed))
    return injection._replace(targets=targets, healed=healed)

  def _reach(self, injection, target) -> bool:
    """Waits until the phase of an injection begins; returns whether the job is well."""
    if injection.phase == "starting":
      # A task starts because it was killed before: this is an injection, too.
      self._number += 1
      number = self._number
      self._writer.write("inject", number=number, fault="kill", role=injection.role,
                         phase=self._phase(target), targets=[target], seconds=0)
      self._begin_fault("kill", target)
      self._end_fault("kill", target)
      self._writer.write("heal", number=number)
      self._wait(lambda: self._processes[target].has_begun, _LIMIT)
      self._wait(lambda: False, injection.delay)
      self._writer.write("recovered", number=number, late=[], next=number + 1, seconds=None)
      return True
    if injection.phase == "saving":
      self._wait(lambda: self._saving_since is None, _LIMIT)
      return self._wait(lambda: self._saving_since is not None, _LIMIT)
    self._wait(lambda: False, injection.delay)
    return True

  def _phase(self, task) -> str:
    if task in CLIENTS:
      return "running"
    if self._saving_since is not None:
      return "saving"
    begun = self._begins.get(task, 0.0)
    if task.startswith("worker"):
      return "training" if self._has_stepped(task, begun) else "starting"
    return "training" if self._have_stepped(begun) else "starting"

  # Faults.

  def _begin_fault(self, fault, task) -> None:
    if fault in ("kill", "stop"):  # a task that has just ended by itself comes back first
      self._wait(lambda: task not in self._due, _LIMIT)
    if fault == "kill":
      self._kill(task)
      self._wait(lambda: not self._is_running(task), _LIMIT)
    elif fault == "stop":
      self._signal(task, signal.SIGSTOP)
      self._processes[task].is_stopped = True
    elif fault == "cut":
      self._network.cut(task)
    elif fault == "slow":
      self._network.slow(task)
    else:
      _fill(os.path.join(self._model, "filler"))

  def _end_fault(self, fault, task) -> None:
    if fault == "kill":
      self._start(task)
    elif fault == "stop":
      self._signal(task, signal.SIGCONT)
      self._processes[task].is_stopped = False
    elif fault == "cut":
      self._network.mend(task)
    elif fault == "slow":
      self._network.hurry(task)
    else:
      os.remove(os.path.join(self._model, "filler"))

  def _kill(self, task, given_up=False) -> None:
    process = self._processes.get(task)
    if process is not None and process.is_running and not process.is_killed:
      process.is_killed = True
      process.given_up = given_up
      self._signal(task, signal.SIGKILL)

  def _signal(self, task, number) -> None:
    try:
      os.kill(self._made.process(self._processes[task].process.pid), number)
    except ProcessLookupError:
      pass  # it has ended meanwhile

  # Processes.

  def _choose_addresses(self) -> None:
    if self._network is not None:
      addresses = ["%s:%d" % (self._network.hosts[task], _PORT) for task in self._tasks]
    else:
      addresses = find_free_addresses(len(self._tasks))
    self._cluster = {"ps": addresses[:NUM_PS], "worker": addresses[NUM_PS:]}

  def _start(self, task) -> None:
    function, args = self._function(task)
    process = self._forks.start_task(LocalTask(task, function, args))
    self._processes[task] = _Process(process, time.monotonic())
    self._starts[task] = self._starts.get(task, 0) + 1
    self._writer.write("start", of=task, pid=process.pid)
    path = os.path.join(self._options.log_dir, "%s-%s.log" % (self._mode, task.replace(" ", "-")))
    threading.Thread(target=_copy, args=(process.output, path), daemon=True).start()

  def _function(self, task):
    job, index = task.split()[0], int(task.split()[1]) if " " in task else 0
    settings = entry.Settings(
      os.path.abspath(self._options.history), self._mode, task, index, self._mode,
      self._examples, _PAUSE, os.path.join(self._folder, "gate"),
      os.path.join(self._folder, "stop"), self._model, breaks=self._options.breaks,
      namespace=self._network.namespace(task) if self._network and task != "watcher" else "")
    if task == "watcher":
      return entry.call, ("program", "watch_checkpoints", settings)
    settings = settings._replace(place=self._made.place(task, task == "worker 0"))
    if task in CLIENTS:
      return entry.call, (
        "tasks", "run_client", settings, self._cluster["ps"][0], self._options.kind)
    if self._options.kind == "stock":
      if job == "ps":
        return entry.call, ("tasks", "run_stock_ps", settings, self._cluster)
      return entry.call, (
        "tasks", "run_stock_worker", settings, self._cluster, SAVE_SECS)
    argv = ["--%s_hosts=%s" % (name, ",".join(there)) for name, there in self._cluster.items()]
    argv += ["--task_index=%d" % index, "--heartbeat_timeout=%g" % HEARTBEAT_TIMEOUT]
    if job == "ps":
      return entry.call, ("tasks", "run_tf1ps_ps", settings, argv)
    argv += ["--program=tools.chaos.program", "--optimizer=sgd", "--learning_rate=1",
             "--batch_size=%d" % _BATCH, "--checkpoint_dir=" + self._model,
             "--save_checkpoints=secs:%g" % SAVE_SECS]
    argv += (["--shard=dynamic", "--epochs=1"] if self._mode == "async" else
             ["--sync_replicas", "--shard=records", "--steps=%d" % self._steps])
    return entry.call, ("tasks", "run_tf1ps_worker", settings, argv)

  def _is_running(self, task) -> bool:
    process = self._processes.get(task)
    return process is not None and process.is_running

  # What the history says.

  @property
  def _workers(self) -> List[str]:
    return [task for task in self._tasks if task.startswith("worker")]

  def _has_stepped(self, task, since) -> bool:
    """Whether a step that a task began after `since` was acknowledged."""
    times = self._acks.get(task, [])
    return bool(times) and times[-1][0] > since

  def _have_stepped(self, since, tasks=None) -> bool:
    return all(self._has_stepped(task, since) for task in tasks or self._workers)

  def _tick(self) -> None:
    self._forks.take()
    for event in self._reader.read():
      if event["job"] == self._mode:
        self._take(event)
    for task, process in list(self._processes.items()):
      if not process.is_running and not process.was_reported:
        process.was_reported = True
        self._writer.write("exit", of=task, pid=process.process.pid, killed=process.is_killed,
                           code=process.process.exit_code,
                           given_up=getattr(process, "given_up", False))
        self._start_again(task, process)
    for task, due in list(self._due.items()):
      if time.monotonic() > due:
        del self._due[task]
        self._start(task)
    if time.monotonic() > self._usage_at:
      self._usage_at = time.monotonic() + _USAGE_INTERVAL
      self._note_usage()

  def _start_again(self, task, process) -> None:
    """Starts a task that has ended by itself, unless it may."""
    is_client = task in CLIENTS
    has_done = process.process.exit_code == 0 and (self._is_over or is_client)
    if process.is_killed or task == "watcher" or has_done or self._is_over and not is_client:
      return
    if is_client or self._starts[task] < _MOST_STARTS + self._number:
      self._due[task] = time.monotonic() + _START_PAUSE

  def _take(self, event) -> None:
    task, kind = event["task"], event["event"]
    if kind == "begin":
      self._begins[task] = event["t"]
      if task in self._processes and self._processes[task].process.pid == event["pid"]:
        self._processes[task].has_begun = True
      if task == "worker 0":
        self._saving_since = None
    elif kind in ("try", "put_try", "get_try"):
      self._tries[task] = event["t"]
    elif kind in ("ack", "put_ack", "get_ack"):
      self._acks.setdefault(task, []).append((self._tries.get(task, 0.0), event["t"]))
    elif kind == "ending":
      self._ending[task] = event["t"]
    elif kind == "saving":
      self._saving_since = event["t"]
    elif kind in ("saved", "checkpoint") or kind == "session" and task == "worker 0":
      self._saving_since = None

  def _note_usage(self) -> None:
    for task, process in self._processes.items():
      if process.is_running:
        found = usage(self._made.process(process.process.pid))
        if found is not None:
          self._writer.write("usage", of=task, pid=process.process.pid, **found)

  def _wait(self, condition: Callable[[], bool], limit: float) -> bool:
    """Waits for a condition, and does meanwhile what must be done; returns whether it came."""
    until, pause = time.monotonic() + limit, threading.Event()
    while True:
      self._tick()
      if condition():
        return True
      if time.monotonic() >= until:
        return False
      pause.wait(_TICK)

  def _touch(self, name) -> None:
    open(os.path.join(self._folder, name), "w").close()


def usage(pid: int) -> Optional[dict]:
  """Returns memory in MB, threads and open files of a process; None if it has ended."""
  try:
    with open("/proc/%d/status" % pid) as file:
      fields = dict(line.split(":", 1) for line in file if ":" in line)
    files = len(os.listdir("/proc/%d/fd" % pid))
    return dict(memory=round(int(fields["VmRSS"].split()[0]) / 1024.0, 1),
                threads=int(fields["Threads"]), files=files)
  except (OSError, KeyError):
    return None


@contextlib.contextmanager
def _network(tasks):
  """Yields the network of the tasks, or None with a message."""
  with contextlib.ExitStack() as stack:
    try:
      made = stack.enter_context(network.Network(tasks))
    except (network.NetworkError, OSError) as error:
      print("chaos: no cuts and no slow links here: %s" % error, flush=True)
      made = None
    yield made


@contextlib.contextmanager
def _small_disk(folder):
  """Makes a directory, on a small disk of its own if that is permitted; yields whether it is."""
  os.mkdir(folder)
  done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + _DISK, "chaos", folder],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
  if done.returncode:
    print("chaos: no full disk here: %s" % done.stdout.strip(), flush=True)
    yield False
    return
  try:
    yield True
  finally:
    subprocess.run(["umount", "--lazy", folder])


def _fill(path) -> None:
  """Writes a file until the disk is full."""
  with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
    for size in (1 << 20, 1 << 12):
      try:
        while True:
          file.write(b"\0" * size)
      except OSError as error:
        if error.errno != errno.ENOSPC:
          raise


def _copy(descriptor, path) -> None:
  """Appends the output of a process to a file."""
  with os.fdopen(descriptor, "rb") as source, open(path, "ab") as target:
    for line in source:
      target.write(line)
      target.flush()


def logs(log_dir: str) -> List[str]:
  """Returns the paths of the logs."""
  return sorted(glob.glob(os.path.join(log_dir, "*.log")))
