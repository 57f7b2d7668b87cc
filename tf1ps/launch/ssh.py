"""Runs a job on a few machines by the system's ssh client: starts its tasks, and ends them.

1. One ssh client per task runs the script `_REMOTE` on the task's host. The script starts the
   command in a session of its own, waits for it, and exits with its code.
2. The script's input is its lifeline. A line is the name of a signal for the command, or a beat.
   When the input ends, or no beat comes for `ssh_silence` seconds, the launcher or the connection
   is gone: the script ends the command by SIGTERM, and after --grace by SIGKILL. So no task
   outlives the launcher, however it ends.
3. After the command has ended, the script kills what is left of its session.
4. The launcher waits for the workers. When all have ended with 0, it waits a while for the ps and
   the evaluator, and ends those that go on, as a ps of plain TensorFlow does.
5. The first task that fails ends all, and so does a signal to the launcher: first the workers, so
   that the chief can save the values of the ps, then the others. A second signal kills.

ssh exits with 255 where it cannot connect or loses the connection; its message is in the output.
"""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import time
from typing import List, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import EXIT_FAILED, SCREEN_VARIABLE, TIMING, signal_exit_code, signal_name
from tf1ps.launch import hosts_file
from tf1ps.launch.fork_server import TaskProcess
from tf1ps.launch.output import Output, Screen, log_path

_PREFIX = "tf1ps-ssh: "
_REPORT_LINES = 10
_OUTPUT_LIMIT = 10 * TIMING.output_limit  # an ssh client that has ended leaves no pipe open
_EXIT_OF_SSH = 255  # it could not connect, or lost the connection
# No question can be answered here. A dead connection ends the client within 20 s.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=5",
            "-o", "ServerAliveCountMax=3")

# bash reads lines with a limit. Its arguments: the folder, the seconds of --grace, the seconds
# without a beat, and the command.
_REMOTE = r"""
cd -- "$1" || exit 126
grace=$2 silence=$3
shift 3
exec 3<&0 </dev/null
(trap - INT QUIT; exec setsid -- "$@") 3<&- &
pid=$!
exec 2>/dev/null
give() { kill -s "$1" -- "-$pid" || kill -s "$1" "$pid"; }
{
  while read -t "$silence" -r line <&3; do
    [ "$line" = . ] || give "$line"
  done
  give TERM
  for ((i = 0; i < 10 * grace; i++)); do
    kill -0 "$pid" || exit
    sleep 0.1
  done
  give KILL
} >/dev/null &
watch=$!
wait "$pid"
code=$?
pkill -KILL -s "$pid" || kill -KILL -- "-$pid"
kill "$watch"
exit "$code"
"""


class _Remote(TaskProcess):
  """A task on another machine, as its ssh client shows it; `pid` is that of the client."""

  def __init__(self, task: hosts_file.HostTask, argv: Sequence[str], ssh: Sequence[str]):
    self._client = subprocess.Popen(
      argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
      start_new_session=True)  # Ctrl-C is for the launcher alone
    super().__init__(task.name, self._client.pid, os.dup(self._client.stdout.fileno()))
    self._client.stdout.close()
    os.set_blocking(self._client.stdin.fileno(), False)
    self.task, self._ssh = task, ssh

  def take_end(self) -> bool:
    """Notes the end; returns whether it has just come."""
    if self.exit_code is None and self._client.poll() is not None:
      self.exit_code, self.ended_at = self._client.returncode, time.time()
      return True
    return False

  def write(self, line: str) -> None:
    """Writes a line for the script: the name of a signal, or "." for a beat."""
    try:
      self._client.stdin.write(("%s\n" % line).encode("ascii"))
    except (OSError, ValueError):
      pass  # the connection is lost, or the task has ended

  def close(self) -> None:
    """Ends the lifeline; the ssh client goes on until the command has ended."""
    try:
      self._client.stdin.close()
    except OSError:
      pass

  def kill_client(self) -> None:
    """Ends the ssh client of a host that does not answer; its script ends the command."""
    self.close()
    self._client.kill()
    self._client.wait()

  @property
  def end(self) -> str:
    """How it ended: "on node3 ended with exit code 1"."""
    code = self.exit_code
    if code == _EXIT_OF_SSH:
      how = "could not be reached by ssh, or the connection was lost (try `%s %s true`)" % (
        " ".join(self._ssh), self.task.host)
    elif code < 0:
      how = "lost its ssh client by %s" % signal_name(-code)
    elif code > 128:
      how = "was ended by %s (exit code %d)" % (signal_name(code - 128), code)
    else:
      how = "ended with exit code %d" % code
    return "on %s %s" % (self.task.host, how)


def run_on_hosts(tasks: Sequence[hosts_file.HostTask], command: Sequence[str], ssh: Sequence[str],
                 folder: str, grace: float, log_dir: Optional[str] = None) -> int:
  """Runs a command on hosts, as the tasks of one job; returns the exit code.

  Call it from the main thread, where signals arrive.

  Args:
    tasks: the tasks of the job.
    command: with placeholders (`hosts_file.command_of`).
    ssh: the ssh client with its options.
    folder: the folder on each host in which the command runs.
    grace: seconds from a signal to a task until it is killed.
    log_dir: directory for one log file per task, made if absent; None for none.

  Returns:
    0 if each task ended with 0; 128 + n if signal n ended the launcher; else 1.

  Raises:
    OSError: the ssh client cannot be started, or `log_dir` cannot be written.
  """
  if log_dir is not None:
    os.makedirs(log_dir, exist_ok=True)
  began, screen = time.monotonic(), Screen()
  stop = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # without beats all tasks would end
  try:
    with SignalQueue() as interrupts:
      job = _Job(tasks, command, ssh, folder, grace, log_dir, screen, interrupts)
      code, text = job.run()
  finally:
    signal.signal(signal.SIGTSTP, stop)
    screen.close()
  severity = "ERROR" if code else "INFO"
  for line in job.report:
    screen.line(_PREFIX + line, severity)
  screen.line("%s%s, %.1f s" % (_PREFIX, text, time.monotonic() - began), severity)
  return code


class _Job:
  """The tasks of a job, from their start to the end of all of them."""

  def __init__(self, tasks, command, ssh, folder, grace, log_dir, screen, interrupts):
    self._tasks, self._command, self._ssh = list(tasks), list(command), list(ssh)
    self._folder, self._grace, self._log_dir = folder, grace, log_dir
    self._screen, self._interrupts = screen, interrupts
    self._remotes: List[_Remote] = []
    self._failed: List[_Remote] = []  # in the order of their ends
    self._handled = 0  # how many of the signals have been acted on
    self._next_beat = 0.0
    self._output: Optional[Output] = None
    self.report: List[str] = []

  def run(self):
    """Runs the tasks; returns (the exit code, how the job ended)."""
    try:
      for task in self._tasks:
        self._remotes.append(_Remote(task, self._argv(task), self._ssh))
      self._screen.line("%sstarted %s" % (_PREFIX, ", ".join(
        "%s on %s" % (task.name, task.host) for task in self._tasks)))
      self._output = Output(self._remotes, self._screen, self._log_dir, _PREFIX)
      return self._watch()
    finally:
      for remote in self._remotes:
        if remote.exit_code is None:
          remote.kill_client()
        remote.close()
      if self._output is not None:
        self._output.close(_OUTPUT_LIMIT)

  def _argv(self, task) -> List[str]:
    screen = [SCREEN_VARIABLE + "=1"] if self._screen.is_terminal else []
    words = ["bash", "-c", _REMOTE, "tf1ps-ssh", self._folder, "%d" % max(1, round(self._grace)),
             "%g" % TIMING.ssh_silence, "env", "PYTHONUNBUFFERED=1", *screen,
             "TF_CONFIG=" + hosts_file.tf_config_of(self._tasks, task),
             *hosts_file.command_of(self._command, self._tasks, task)]
    # The login shell, whichever it is, sees quoted words alone.
    return [*self._ssh, *_OPTIONS, "--", task.host, "exec " + " ".join(map(shlex.quote, words))]

  def _watch(self):
    ended = self._wait(lambda: not self._running(("worker",)) or self._failed)
    if ended and not self._failed:
      for jobs, limit in ((("ps",), self._grace), (("evaluator",), TIMING.evaluator_limit)):
        self._wait(lambda jobs=jobs: not self._running(jobs) or self._failed, limit)
    received, failed = self._interrupts.received, list(self._failed)
    if received:
      self._screen.line(_PREFIX + "%s: ending the workers, then the others" % (
        signal_name(received[0])))
      self._end(signal.SIGINT if received[0] == signal.SIGINT else signal.SIGTERM)
      return signal_exit_code(received[0]), "ended by " + signal_name(received[0])
    if failed:
      return self._fail(failed)
    if self._running():
      self._screen.line(_PREFIX + "the workers have ended with 0, and %s still runs: ending it" % (
        ", ".join(one.name for one in self._running())))
      self._end(signal.SIGTERM)
      if self._interrupts.received:
        number = self._interrupts.received[0]
        return signal_exit_code(number), "ended by " + signal_name(number)
    return 0, "ok, %d tasks" % len(self._remotes)

  def _fail(self, failed):
    text = "; ".join("%s %s" % (one.name, one.end) for one in failed)
    for one in failed:
      self._output.wait_end(one, _OUTPUT_LIMIT / len(failed))
    if self._running():
      self._screen.line(_PREFIX + text + ": ending the others")
    self._end(signal.SIGTERM)
    for one in failed:
      lines = self._output.last_lines(one, _REPORT_LINES)
      if lines:
        self.report.append("last lines of %s on %s, until %s:" % (
          one.name, one.task.host, time.strftime(
            "%Y-%m-%d %H:%M:%S", time.localtime(one.ended_at))))
        self.report += ["  " + line for line in lines]
    logs = ", ".join(log_path(self._log_dir, one.name) for one in failed) if self._log_dir else ""
    return EXIT_FAILED, "failed: " + text + (" (%s)" % logs if logs else "")

  def _running(self, jobs=None) -> List[_Remote]:
    return [one for one in self._remotes
            if one.exit_code is None and (jobs is None or one.task.job in jobs)]

  def _wait(self, done, limit: Optional[float] = None) -> bool:
    """Waits for a condition; False after `limit` seconds, or when another signal has arrived."""
    until = None if limit is None else time.monotonic() + limit
    while True:
      self._beat()
      ended = [one for one in self._remotes if one.take_end()]
      # Of failures that are seen together, a lost connection or a signal is the likely cause.
      self._failed += sorted((one for one in ended if one.exit_code),
                             key=lambda one: not (one.exit_code < 0 or one.exit_code > 128))
      if done():
        return True
      self._interrupts.take()
      if len(self._interrupts.received) > self._handled or (
          until is not None and time.monotonic() >= until):
        return False
      select.select([self._interrupts], [], [], TIMING.local_poll_interval)

  def _beat(self):
    if time.monotonic() >= self._next_beat:
      self._next_beat = time.monotonic() + TIMING.ssh_beat_interval
      for one in self._running():
        one.write(".")

  def _end(self, number: int) -> None:
    """Ends the running tasks: workers, then the others; by a signal, then by SIGKILL."""
    self._handled = max(self._handled, len(self._interrupts.received))
    for jobs in (("worker",), None):
      self._signal(jobs, number)
      self._wait(lambda jobs=jobs: not self._running(jobs), self._grace)
      if len(self._interrupts.received) > self._handled:
        self._screen.line(_PREFIX + "a second signal: killing the remaining tasks")
        self._handled = len(self._interrupts.received)
        jobs = None
      elif self._running(jobs):
        self._screen.line(_PREFIX + "%s did not end within %g s of %s: killed" % (
          ", ".join(one.name for one in self._running(jobs)), self._grace, signal_name(number)))
      self._signal(jobs, signal.SIGKILL)
      self._wait(lambda jobs=jobs: not self._running(jobs),
                 TIMING.ssh_beat_interval + TIMING.killed_limit)

  def _signal(self, jobs, number: int) -> None:
    for one in self._running(jobs):
      one.write(signal_name(number)[len("SIG"):])
