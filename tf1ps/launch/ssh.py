"""Runs a job on a few machines by the system's ssh client: starts its tasks, and ends them.

1. An ssh client per task runs the script `_REMOTE` on the task's host. The script starts the
   command in a new Unix session, waits for it, and exits with the command's exit code.
2. The script's input is its lifeline. Each line is the name of a signal for the command, or a beat.
   When the input ends, or no beat comes for `ssh_silence` seconds, the launcher or the connection
   is gone: the script ends the command by SIGTERM, and after --grace by SIGKILL. So no task
   outlives the launcher, however the launcher ends.
3. After the command has ended, the script kills the remaining processes of the command's session.
4. `watch.Watch` waits for the ends, and ends the tasks. --grace is the limit of each of its waits.

ssh exits with 255 if it cannot connect or loses the connection; its message is in the output.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import time
from typing import List, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import EXIT_FAILED, SCREEN_VARIABLE, TIMING, signal_name
from tf1ps.launch.hosts_file import command_of
from tf1ps.launch.job import Backend, Job, Task, TaskProcess, tf_config_of
from tf1ps.launch.output import Screen
from tf1ps.launch.watch import Watch, show_end

_PREFIX = "tf1ps-ssh: "
_OUTPUT_LIMIT = 10 * TIMING.output_limit  # an ssh client that has ended leaves no pipe open
_EXIT_OF_SSH = 255  # ssh could not connect, or lost the connection
# No user can answer a question of ssh here. A dead connection ends the client within 20 s.
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
  """A task on another machine, as its ssh client shows it; `pid` is the client's process id."""

  def __init__(self, task: Task, argv: Sequence[str]):
    self._client = subprocess.Popen(
      argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
      start_new_session=True)  # so that Ctrl-C reaches only the launcher
    super().__init__(task.name, self._client.pid, os.dup(self._client.stdout.fileno()))
    self._client.stdout.close()
    os.set_blocking(self._client.stdin.fileno(), False)
    self._where, self._check = " on " + task.host, "ssh %s true" % task.host

  def has_ended(self) -> bool:
    if self._client.poll() is not None:
      self.note_end(self._client.returncode)
    return self.exit_code is not None

  def write(self, line: str) -> None:
    """Writes a line for the script: the name of a signal, or "." for a beat."""
    with contextlib.suppress(OSError, ValueError):  # the connection is lost, or the task has ended
      self._client.stdin.write(("%s\n" % line).encode("ascii"))

  def close(self) -> None:
    """Ends the lifeline, and the ssh client of a host that does not answer."""
    with contextlib.suppress(OSError):
      self._client.stdin.close()
    if self.exit_code is None:
      self._client.kill()
      self._client.wait()

  @property
  def place(self) -> str:
    return self.name + self._where

  @property
  def title(self) -> str:
    return "%s, until %s" % (self.place, self._ended_at())

  @property
  def was_killed(self) -> bool:
    return self.exit_code < 0 or self.exit_code > 128

  def _end(self):
    code = self.exit_code
    if code == _EXIT_OF_SSH:
      return "could not be reached by ssh, or the connection was lost (try `%s`)" % self._check
    if code < 0:
      return "lost its ssh client by %s" % signal_name(-code)
    if code > 128:
      return "was ended by %s (exit code %d)" % (signal_name(code - 128), code)
    return "ended with exit code %d" % code


class _Hosts(Backend):
  def __init__(self, make_argv):
    self._make_argv = make_argv
    self.ended: List[TaskProcess] = []
    self._running: List[_Remote] = []
    self._next_beat = 0.0

  def close(self) -> None:
    for remote in self.ended + self._running:
      remote.close()

  def start_task(self, task: Task) -> _Remote:
    self._running.append(_Remote(task, self._make_argv(task)))
    return self._running[-1]

  def take(self) -> None:
    self.ended += [remote for remote in self._running if remote.has_ended()]
    self._running = [remote for remote in self._running if remote.exit_code is None]
    if time.monotonic() >= self._next_beat:
      self._next_beat = time.monotonic() + TIMING.ssh_beat_interval
      for remote in self._running:
        remote.write(".")

  def wait(self, interrupts, limit) -> None:
    pause = TIMING.local_poll_interval  # the end of an ssh client gives no notice
    select.select([interrupts], [], [], pause if limit is None else min(limit, pause))

  def signal_task(self, process: TaskProcess, number: int) -> None:
    process.write(signal_name(number)[len("SIG"):])


def run_on_hosts(tasks: Sequence[Task], command: Sequence[str], grace: float,
                 log_dir: Optional[str] = None) -> int:
  """Runs a command on hosts, as the tasks of a job; returns the exit code.

  Call it from the main thread, where signals arrive. On each host, the command runs in the folder
  that has the name of this process's folder.

  Args:
    tasks: the tasks of the job.
    command: with placeholders (`hosts_file.command_of`).
    grace: seconds from a signal to a task until it is killed.
    log_dir: the directory of a log file per task, made if absent; None for no files.

  Returns:
    0 if each task ended with 0; 128 + n if signal n ended the launcher; else 1.

  Raises:
    OSError: the ssh client cannot be started, or `log_dir` cannot be written.
  """
  def make_argv(task):
    words = ["bash", "-c", _REMOTE, "tf1ps-ssh", os.getcwd(), "%d" % max(1, round(grace)),
             "%g" % TIMING.ssh_silence, "env", "PYTHONUNBUFFERED=1",
             *[SCREEN_VARIABLE + "=1"] * screen.is_terminal,
             "TF_CONFIG=" + tf_config_of(tasks, task), *command_of(command, tasks, task)]
    # All words are quoted, so that any login shell understands them.
    return ["ssh", *_OPTIONS, "--", task.host, "exec " + " ".join(map(shlex.quote, words))]

  if log_dir is not None:
    os.makedirs(log_dir, exist_ok=True)
  began, screen = time.monotonic(), Screen()
  job = Job(tasks, _PREFIX, grace, grace, grace, grace, output_limit=_OUTPUT_LIMIT,
            killed_limit=TIMING.ssh_beat_interval + TIMING.killed_limit, log_dir=log_dir,
            is_ours=False)
  stop = signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # without beats all tasks would end
  try:
    with SignalQueue() as interrupts, contextlib.closing(_Hosts(make_argv)) as hosts:
      outcome = Watch(job, hosts, interrupts, screen).run()
  finally:
    signal.signal(signal.SIGTSTP, stop)
    screen.close()
  text = "ok, %d tasks" % len(tasks) if not outcome.exit_code else outcome.text
  show_end(screen, _PREFIX, outcome,
           "failed: " + text if outcome.exit_code == EXIT_FAILED else text, began)
  return outcome.exit_code
