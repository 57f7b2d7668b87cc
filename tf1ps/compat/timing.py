"""Every wait that no flag sets: intervals, pauses and limits, in one value that tests shorten.

`TIMING` is made once per process. The environment variable TF1PS_TIMING, a JSON object such as
`{"heartbeat_interval": 0.1}`, overrides fields of it, here and in every process that this process
starts. TF1PS_START_TIMEOUT does the same for the limit of the start, where no argument or flag sets
it: a legacy trainer has none. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import json
import os
from typing import Mapping, NamedTuple

from tf1ps.compat.error_texts import Error

VARIABLE = "TF1PS_TIMING"
START_VARIABLE = "TF1PS_START_TIMEOUT"


class TimingError(Error, ValueError):
  """The environment variable TF1PS_TIMING does not describe a `Timing`, or another is wrong."""


class Timing(NamedTuple):
  """Waits in seconds, by what they are for."""

  # Between two looks of a wait.
  poll_interval: float = 0.25  # at other tasks, through a server; see `poll_pause`
  fast_poll_interval: float = 0.1  # at an answer that is due at once, or at a signal
  local_poll_interval: float = 0.05  # at threads and queues of this process
  queue_poll_interval: float = 0.005  # of a waiting caller at a queue; each costs the ps 0.5 ms
  first_poll_interval: float = 0.002  # where the interval doubles
  call_poll_interval: float = 0.5  # at signals, while a run is in progress

  # Between two tries of what failed and may succeed.
  retry_pause: float = 0.25  # the first; it doubles where the ps may need long
  save_retry_pause: float = 5.0  # after a failed save; it doubles up to 12 times this
  longest_retry_pause: float = 4.0

  # Heartbeats, and what is done as often.
  heartbeat_interval: float = 1.0  # between two heartbeats, probes, or looks at heartbeats; at most
  steady_beats: float = 5.0  # intervals without a disturbance before silence makes a task lost
  alive_within: float = 5.0  # a task whose last heartbeat is younger is alive
  client_works: float = 1.0  # a client that is connected for longer than a probe has a session
  lost_check_interval: float = 5.0  # between two looks for what lost workers held
  status_interval: float = 5.0  # between two writes of the run's status file, at most
  range_report_interval: float = 1.0  # between two reports of ranges that are done

  # Between two lines about the same thing, and before the first.
  first_report: float = 1.0  # progress, or a wait
  report_interval: float = 5.0  # progress, one line each
  status_refresh: float = 1.0  # tf1ps-top
  screen_interval: float = 0.2  # progress, on a terminal
  reminder_interval: float = 10.0  # a wait that goes on
  long_run: float = 10.0  # a run that lasts so long is explained

  # Between two uses of the network that a running job makes beside its steps.
  global_step_interval: float = 0.5  # questions for the global step
  position_interval: float = 5.0  # stores of the input's position, at least

  # The end of a job.
  end_timeout: float = 300.0  # for a worker that makes no step: of the chief, and under max_lead
  linger: float = 1.5  # from the release of a ps to its end, so that nobody's last call breaks
  leave_limit: float = 2.0  # that a loop has to end by itself after a signal
  force_exit_limit: float = 4.5  # from a signal to the end of the process by force
  failed_saves_limit: float = 600.0  # from the first of several failed saves to the chief's end
  save_limit: float = 60.0  # for a checkpoint after the loss of another task
  ended_run_wait: float = 3.0  # for a task that the job needs, where the run has ended
  step_vote_limit: float = 30.0  # for the others to make the last step too
  step_vote_limit_after_signal: float = 1.5
  steps_end_limit: float = 5.0  # for steps under way, before the session closes
  replica_end_limit: float = 10.0  # for the last step of a thread of this process
  last_read_limit: float = 5.0  # for what is read at the end for a report alone
  report_limit: float = 10.0  # to tell others how this task ended
  report_limit_after_failure: float = 3.0
  report_limit_after_signal: float = 1.0
  report_limit_after_loss: float = 0.3  # the task that would hear it may be lost
  unheard_report_limit: float = 0.5  # where the ps has never answered
  heard_limit: float = 3.0  # for the chief to read the report of a worker, which then leaves
  thread_end_limit: float = 1.0  # for a thread that was asked to end
  session_close_limit: float = 3.0  # a session that does not close is left behind
  run_session_close_limit: float = 1.0  # of a job: with a dead ps no session closes, the next waits
  aborted_close_limit: float = 0.2
  # For sessions that are closing when the process ends; above the 10 s after which TensorFlow gives
  # up a close that a server does not answer.
  late_close_limit: float = 15.0
  call_grace: float = 0.2  # after TensorFlow's own limit of a run, until the run is left behind
  answer_limit: float = 10.0  # after a caller's own timeout, for the answer to a run under way
  generator_end_limit: float = 0.3  # for an input function in Python to return
  runner_end_limit: float = 0.4  # for a queue runner's thread; above the limit before
  runner_threads_end_limit: float = 0.7  # for all of them; above the limit before
  runner_others_limit: float = 5.0  # for other threads' records, when one thread fails

  # Calls to a server.
  probe_limit: float = 2.0  # for a server to answer a probe; a live server takes milliseconds
  watch_probe_limit: float = 1.0  # the same, of a server that has answered before
  round_trip_limit: float = 5.0  # for one try of the path worker, ps, worker; it may connect
  cluster_record_limit: float = 2.0  # for a ps that has just started to write its cluster down
  join_limit: float = 1.0  # for a ps's program to call join; below the limit before
  lock_limit: float = 10.0  # for a run that waits for a lock on a ps
  reset_limit: float = 10.0  # for one task of a cluster to clear its containers
  reset_lock_limit: float = 2.0  # the same in a reset: a longer step is not waited for
  reset_wait: float = 30.0  # for a reset to be done, if --heartbeat_timeout is shorter
  session_stop_limit: float = 5.0  # for the sessions of a job whose container is reset
  cancelled_step_limit: float = 2.0  # for a server to end a cancelled step; 1.15 begins after 1 s
  queue_make_limit: float = 10.0  # to make a queue again whose ps was restarted
  link_limit: float = 5.0  # for a link to another task: the dial, the handshake, the first answer
  link_first_limit: float = 2.0  # for the first bytes of a connection from outside
  link_end_limit: float = 3.0  # for a sidecar to deliver the last bytes of a task that has ended
  link_idle_limit: float = 60.0  # without bytes; then the kernel probes the other machine
  link_probe_interval: float = 15.0  # between two such probes, whole seconds
  certificate_interval: float = 3600.0  # between two looks at the end of the certificate
  sidecar_limit: float = 30.0  # for a sidecar to answer its task
  port_free_limit: float = 1.0  # for an earlier process of a task to leave its port
  file_check_limit: float = 20.0  # to find the damaged file after an error

  # The process's own output.
  output_stall_limit: float = 1.0  # for a reader at rest, until text is dropped
  last_words_limit: float = 1.0  # for the last lines of a process that ends by force

  # The launcher of local tasks.
  workers_end_limit: float = 4.0  # for workers after SIGTERM, once a task has failed
  workers_end_limit_after_signal: float = 15.0  # the same, when the launcher was signalled
  others_end_limit: float = 2.0  # for the other tasks after SIGTERM
  script_tasks_end_limit: float = 10.0  # for a script's tasks after a failure, or after a signal
  killed_limit: float = 1.0  # for tasks after SIGKILL
  output_limit: float = 0.5  # for the last output of tasks that have ended
  traceback_limit: float = 1.0  # from a task's traceback to its end, so that it is its last word
  common_signal_limit: float = 0.5  # for a signal to the launcher by which its tasks have ended
  cause_limit: float = 15.0  # for the task that failed first, where a task says that another did
  evaluator_limit: float = 3600.0  # for the evaluator after the last ps
  restart_pause: float = 1.0  # before the second restart of a failed task; the first has none
  longest_restart_pause: float = 30.0  # each next pause doubles up to it
  restart_reset: float = 300.0  # a task that lived so long is started again at once, as at first
  stalled_least: float = 10.0  # of a run that lasts much longer than those before, until it counts
  stalls_pause: float = 3.0  # for the other tasks that stand still to say what they wait for
  ssh_beat_interval: float = 5.0  # of tf1ps-ssh to the script on a task's host
  ssh_silence: float = 30.0  # of tf1ps-ssh, until the script ends its task
  fork_limit: float = 30.0  # for a process to be forked
  fork_server_end_limit: float = 8.0  # for the fork server to end its tasks and itself
  fork_server_kill_limit: float = 5.0  # of that, for the tasks that it kills
  import_limit: float = 600.0  # for the imports before the first fork
  nvidia_smi_limit: float = 20.0  # nvidia-smi may have to wake drivers


def poll_pause(waited: float) -> float:
  """Returns the pause until the next look at other tasks, of a wait that has lasted `waited` s.

  It is short at first: what is about to come is seen when it comes.
  """
  return min(TIMING.poll_interval, max(TIMING.local_poll_interval, waited / 3))


def read(environment: Mapping[str, str]) -> Timing:
  """Reads the timing of a process from its environment.

  Args:
    environment: may hold TF1PS_TIMING, a JSON object {field of `Timing`: seconds}.

  Returns:
    The `Timing`: the defaults where the variable does not say otherwise.

  Raises:
    TimingError: it is not a JSON object, names an unknown field, or has a value other than a number
      from 0 on.
  """
  text = environment.get(VARIABLE) or "{}"
  try:
    values = json.loads(text)
  except ValueError as error:
    raise TimingError("%s is not a JSON object (%s): %s" % (VARIABLE, error, text)) from error
  if not isinstance(values, dict):
    raise TimingError('%s must be a JSON object such as {"linger": 0.1}, got %s' % (VARIABLE, text))
  for name, value in values.items():
    if name not in Timing._fields:
      raise TimingError("%s has no field %r. The fields are %s." % (
        VARIABLE, name, ", ".join(sorted(Timing._fields))))
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value < float("inf"):
      raise TimingError("%s: %s must be a number of seconds from 0 on, got %r" % (
        VARIABLE, name, value))
  return Timing(**values)


def read_start_timeout(environment: Mapping[str, str]) -> float:
  """Returns the seconds of TF1PS_START_TIMEOUT, 60 without it; raises TimingError."""
  text = environment.get(START_VARIABLE) or "60"
  try:
    value = float(text)
  except ValueError:
    value = 0.0
  if not 0 < value < float("inf"):
    raise TimingError("%s must be a positive number of seconds, got %r" % (START_VARIABLE, text))
  return value


TIMING = read(os.environ)
START_TIMEOUT = read_start_timeout(os.environ)  # until the tasks that a session needs must answer
GRACE = 25.0  # from SIGTERM to the end of a task; Kubernetes kills it after 30 s
