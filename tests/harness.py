"""Real processes for tests: tasks forked from one process that has TensorFlow imported.

`Forks.start` runs a function of an importable module as a process; the `Task` that it returns has
the process's output, line by line, and its exit code. A test gets `start` from the fixture of that
name (see conftest.py), which kills what is left when the test ends.
"""
from __future__ import annotations

import contextlib
import glob
import multiprocessing.connection
import os
import random
import re
import signal
import socket
import threading
import time

from tf1ps.launch import fork_server, ports

LIMIT = 60.0  # seconds; for whatever takes one or two on a machine that has nothing else to do
# A line of TensorFlow's log, or one that goes on with it.
_LOGGED = re.compile(r"(\d{4}-\d\d-\d\d [\d:.]+: )?[IWE](\d{4} | tensorflow/)"
                     r"|Additional GRPC error information|:UNKNOWN:Error|:\{\"created\":"
                     r"|\t \[\[\{\{node ")
_BLOCK = 200  # ports that a process of tests takes for itself at a time
_LOWEST = 2048  # of all ports: services of the system have those below
_blocks = []  # the sockets by which other processes of tests know that a block is taken


def without_logs(lines):
  """Returns the lines that TensorFlow's own log has not written."""
  return [line for line in lines if not _LOGGED.match(line)]


class Task(object):
  """A process of a test: its output, its end.

  Attributes:
    lines: what it has printed so far, a list of lines.
  """

  def __init__(self, forks, process):
    self._forks = forks
    self._process = process
    self._news = threading.Condition()
    self.name = process.name
    self.pid = process.pid
    self.lines = []
    self._reader_done = threading.Event()
    threading.Thread(target=self._read, daemon=True).start()

  @property
  def output(self):
    """All that it has printed so far."""
    with self._news:
      return "\n".join(self.lines)

  @property
  def last_line(self):
    """The last line that is not of TensorFlow's own log, whose threads may write after it."""
    with self._news:
      return without_logs(self.lines)[-1]

  def wait_for(self, text, limit=LIMIT, since=0):
    """Waits for a line with this text behind the first `since` ones; returns the line.

    TensorFlow's own log does not count, in which a word like "up" may stand.
    """
    until = time.monotonic() + limit
    position = since
    with self._news:
      while True:
        for line in self.lines[position:]:
          if text in line and not _LOGGED.match(line):
            return line
        position = len(self.lines)
        left = until - time.monotonic()
        if self._reader_done.is_set() or left <= 0 or not self._news.wait(left):
          raise AssertionError("no %r within %g s, or before its end, from %s:\n%s" % (
            text, limit, self.name, "\n".join(self.lines)))

  def wait(self, limit=LIMIT):
    """Waits for its end; returns the exit code, -n after signal n."""
    until = time.monotonic() + limit
    while True:
      self._forks.take()
      if self._process.exit_code is not None:
        self._reader_done.wait(LIMIT)
        return self._process.exit_code
      left = until - time.monotonic()
      if left <= 0:
        raise AssertionError("%s has not ended within %g s:\n%s" % (self.name, limit, self.output))
      self._forks.wait(min(left, 0.5))

  @property
  def is_running(self):
    self._forks.take()
    return self._process.exit_code is None

  def signal(self, number=signal.SIGTERM):
    """Sends a signal to the process, and to nothing that it has started."""
    signal_process(self.pid, number)

  def kill(self):
    """Ends it at once, also a stopped one."""
    if self.is_running:
      try:
        self.signal(signal.SIGKILL)
      except ProcessLookupError:
        pass  # it has ended by itself meanwhile
    return self.wait()

  def _read(self):
    with os.fdopen(self._process.output, "rb") as stream:
      for line in stream:
        with self._news:
          self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
          self._news.notify_all()
    self._reader_done.set()
    with self._news:
      self._news.notify_all()


class Forks(object):
  """Starts processes from one that has everything imported."""

  def __init__(self, *more):
    """Has the modules named in `more` imported, too, after those that most tests need."""
    self._server = fork_server.ForkServer(
      ["tests.preload", "tf1ps.cli.preload", *more])
    self._lock = threading.RLock()

  def start(self, name, function, *args, **env):
    """Starts function(*args), of an importable module, as a process.

    Args:
      name: for messages.
      function: of a module that can be imported, not of the test's own file.
      args: pickled.
      env: environment variables for the process.
    """
    with self._lock:
      return Task(self, self._server.start_task(fork_server.LocalTask(name, function, args, env)))

  @contextlib.contextmanager
  def starts(self):
    """Gives a function like `start`; kills at the end of the block what is left.

    The function's `tasks` are those that it has started.
    """
    started = []

    def start_one(name, function, *args, **env):
      started.append(self.start(name, function, *args, **env))
      return started[-1]

    start_one.tasks = started

    try:
      yield start_one
    finally:
      for task in started:
        task.kill()

  def take(self):
    with self._lock:
      self._server.take()

  def wait(self, limit):
    multiprocessing.connection.wait([self._server], limit)

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._server.close()


def signal_process(pid, number):
  """Sends a signal; SIGSTOP and SIGKILL have reached every thread when this returns."""
  os.kill(pid, number)
  if number in (signal.SIGSTOP, signal.SIGKILL):
    wait_until(lambda: not _is_moving(pid), what="the effect of signal %d" % number)


def _is_moving(pid):
  for path in glob.glob("/proc/%d/task/*/stat" % pid):
    try:
      with open(path) as file:
        state = file.read().rpartition(")")[2].split()[0]
    except OSError:  # it has ended
      continue
    if state not in "TZX":
      return True
  return False


class Repeated(threading.Thread):
  """Does something again and again beside a block."""

  def __init__(self, every):
    super().__init__(daemon=True)
    self._end, self._every = threading.Event(), every

  def __enter__(self):
    self.start()
    return self

  def __exit__(self, *error):
    self._end.set()
    self.join()

  def run(self):
    while not self._end.wait(self._every):
      self.act()


def wait_until(condition, limit=LIMIT, what="the condition"):
  """Waits until condition() is true; returns what it returned.

  `what` is for the message where it does not come: a text, or a callable that makes one then.
  """
  until = time.monotonic() + limit
  pause = threading.Event()
  while True:
    value = condition()
    if value:
      return value
    if time.monotonic() >= until:
      raise AssertionError("%s has not come within %g s" % (
        what() if callable(what) else what, limit))
    pause.wait(0.02)


def tcp_sockets(pid):
  """The TCP sockets of a process, as its (own port, state), "01" connected, "0A" listening."""
  sockets, found = set(), []
  for descriptor in os.listdir("/proc/%d/fd" % pid):
    try:
      sockets.add(os.readlink("/proc/%d/fd/%s" % (pid, descriptor)))
    except FileNotFoundError:
      continue  # a connection that has ended
  for kind in ("tcp", "tcp6"):
    with open("/proc/%d/net/%s" % (pid, kind)) as file:
      rows = [line.split() for line in list(file)[1:]]
    found += [(int(row[1].rpartition(":")[2], 16), row[3]) for row in rows
              if "socket:[%s]" % row[9] in sockets]
  return found


def addresses(count):
  """Returns so many free addresses of this machine, each of them once, and to one process."""
  return ["127.0.0.1:%d" % port for port in ports.find_free_ports(count, _ports)]


def _firsts_of_blocks():
  """The first ports of all blocks in a random order, last those from which launchers draw.

  A launcher of another test may take such a port before the test's own server does.
  """
  ephemeral = ports.ephemeral_range()
  drawn = ports.candidate_range(*ephemeral)

  def meets(first, bounds):
    return first <= bounds[1] and bounds[0] < first + _BLOCK

  firsts = [first for first in range(_LOWEST, 65537 - _BLOCK, _BLOCK)
            if not meets(first, ephemeral)]
  random.SystemRandom().shuffle(firsts)
  return sorted(firsts, key=lambda first: meets(first, drawn))


def _ports_of_this_process():
  """Draws blocks of ports that no other process of tests on this machine draws, until its end.

  A port that is free now may be another test's a moment later, and one that a test has left alone
  so that nobody listens there would be somebody's: so each is given away once.
  """
  for first in _firsts_of_blocks():
    taken = socket.socket(socket.AF_UNIX)
    try:
      taken.bind("\0tf1ps tests: ports from %d" % first)  # a name, and no file
    except OSError:
      taken.close()
      continue
    _blocks.append(taken)
    yield from range(first, first + _BLOCK)


_ports = _ports_of_this_process()
