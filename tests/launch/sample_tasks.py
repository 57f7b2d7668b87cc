"""What the tests of this folder run as tasks, and what they look at processes with."""
from __future__ import annotations

import ctypes
import gc
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

LIMIT = 300.0  # seconds; a task that a test forgot ends by itself, later than any test


def wait_until(condition, limit=60.0):
  """Waits for a condition; returns its value, a false one after `limit` seconds."""
  pause = threading.Event()
  end = time.monotonic() + limit
  while not condition() and time.monotonic() < end:
    pause.wait(0.01)
  return condition()


def lives(pid):
  """Whether a process runs or is stopped; one that has ended and was not reaped does not."""
  try:
    return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] != "Z"
  except OSError:
    return False


def is_stopped(pid):
  return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] == "T"


def write_whole(path, text):
  """Writes a file that appears with all of its text."""
  with open(path + ".part", "w") as part:
    part.write(str(text))
  os.rename(path + ".part", path)


def _descriptors():
  """This process's open pipes and sockets."""
  return [name for name in os.listdir("/proc/self/fd")
          if os.path.exists("/proc/self/fd/" + name)
          and os.readlink("/proc/self/fd/" + name).startswith(("pipe:", "socket:"))]


# The tasks.


def answer(value=None):
  return value


def collector():
  print(gc.isenabled(), gc.get_freeze_count() > 1000)


def leave_by(kind):
  if kind == "exit":
    sys.exit()
  if kind == "exit 7":
    sys.exit(7)
  if kind == "exit text":
    sys.exit("nothing to do")
  if kind == "raise":
    raise ValueError("no such digit")
  if kind == "many lines":
    print("\n".join(["line"] * 30))
    sys.exit(7)
  if kind == "kill":
    os.kill(os.getpid(), signal.SIGKILL)


def write_to_both_streams(index):
  """Writes by Python, by the descriptor, and by C; the last of it without line end."""
  print("hello from %d" % index)
  sys.stderr.write("Grüße\n")
  os.write(1, b"descriptor\n")
  ctypes.CDLL(None).printf(b"from C")


def tell(path):
  """Writes down what the process finds itself in."""
  import numpy as np
  write_whole(path, repr({
      "pid": os.getpid(), "group": os.getpgrp(), "ppid": os.getppid(), "argv": sys.argv,
      "env": {name: os.environ.get(name) for name in ("LAUNCH_SET", "LAUNCH_GONE")},
      "stdin": sys.stdin.read(), "draw": np.random.randint(1 << 30),
      "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
      "pipes": sorted({os.readlink("/proc/self/fd/" + name) for name in _descriptors()}),
      "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler}))


def look_like():
  """Prints what ps and top show of this process, and of its parent."""
  for pid in (os.getpid(), os.getppid()):
    print(pathlib.Path("/proc/%d/cmdline" % pid).read_text().strip("\0 "))
  print("PATH" in pathlib.Path("/proc/self/environ").read_text(), "SPT_NOENV" in os.environ)


def leave_a_thread_running():
  threading.Thread(target=threading.Event().wait, args=(LIMIT,)).start()
  return 3


def stay(path):
  """Writes its process id to a file, and stays."""
  write_whole(path, os.getpid())
  threading.Event().wait(LIMIT)
  return 5


def flood(path):
  """Writes more than pipes hold, tells, and stays."""
  for _ in range(40):
    print("x" * (1 << 14), flush=True)
  stay(path)


def stay_deaf(path):
  """As `stay`, and hears no SIGTERM and no SIGINT."""
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  return stay(path)


def start_child(path, then_leave=False):
  """Starts a process that holds the output open, deaf to SIGHUP; notes both process ids."""
  child = subprocess.Popen(
      ["sh", "-c", "trap '' HUP INT; exec sleep %g" % LIMIT])
  write_whole(path, "%d %d" % (os.getpid(), child.pid))
  print("child started")
  if not then_leave:
    threading.Event().wait(LIMIT)


def leave_by_when(kind, path):
  read_when_there(path)
  leave_by(kind)


def tell_and_answer(path, value):
  """Writes its process id to a file, and leaves."""
  write_whole(path, os.getpid())
  return value


def fail_first(path, times, kind="exit 7", path_to_await=None):
  """Fails in its first `times` starts, which a file counts; then leaves, or awaits a file."""
  starts = 1 + (int(read_when_there(path)) if os.path.exists(path) else 0)
  write_whole(path, starts)
  print("start %d" % starts)
  if starts <= times:
    leave_by(kind)
  if path_to_await is not None:
    return wait_for(path_to_await)


def complain(folder, name, others, text):
  """Fails for a reason when the other tasks are there as well: as a task of tf1ps does."""
  signal.signal(signal.SIGTERM, signal.SIG_IGN)
  write_whole(os.path.join(folder, name), os.getpid())
  for other in others:
    read_when_there(os.path.join(folder, other))
  print("Traceback (most recent call last):\n  File program.py\n%s: %s, exit code 1" % (name, text))
  return 1


def complain_and_go_on(path):
  """Prints a traceback, and goes on when the file is there."""
  print("Traceback (most recent call last):\n  File program.py\nValueError: a trifle", flush=True)
  read_when_there(path)


def fail_when(path, said):
  """Prints a line, and kills itself when a file is there."""
  print("its last line", flush=True)
  write_whole(said, os.getpid())
  read_when_there(path)
  leave_by("kill")


def print_lines(count, said, path):
  """Prints lines when a file is there, writes another one, and stays."""
  read_when_there(said)
  for i in range(count):
    print("line %d" % i, flush=True)
  write_whole(path, os.getpid())
  signal.pause()


def raise_when_gone(path):
  """Fails when the process whose id is in a file has ended."""
  pid = int(read_when_there(path))
  wait_until(lambda: not lives(pid), LIMIT)
  leave_by("raise")


def note_signal(path, seconds, code=0, other=None):
  """Waits for a signal; then takes some seconds to leave; notes signal, begin and end of that.

  Where it is given the path of another task that does the same, it leaves when both have heard.
  """
  heard = threading.Event()
  numbers = []
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: (numbers.append(number), heard.set()))
  write_whole(path + ".pid", os.getpid())
  wait_until(heard.is_set, LIMIT)
  begin = time.monotonic()
  write_whole(path + ".heard", numbers[0])
  threading.Event().wait(seconds)
  if other is not None:
    read_when_there(other + ".heard")
  write_whole(path, "%d %r %r" % (numbers[0], begin, time.monotonic()))
  return int(code)


def wait_for(path, code=0):
  """Waits for a file, then leaves."""
  return code if wait_until(lambda: os.path.exists(path), LIMIT) else 4


def wait_for_text(path, text):
  """Waits until a file has a text, then leaves."""
  return 0 if wait_until(lambda: os.path.exists(path) and read_when_there(path) == text, LIMIT) \
      else 4


def write_and_leave(path):
  write_whole(path, "")


def tell_parent(path, other):
  """Writes its parent's process id to a file, once the other task has written its own."""
  read_when_there(other)
  write_whole(path, os.getppid())
  threading.Event().wait(LIMIT)


def bind(port, path, writes):
  """Binds a port as a server does, says 98 if it is taken; else writes a file, or waits for it."""
  from tf1ps.compat import exit_codes
  listener = socket.socket()
  try:
    listener.bind(("", port))
  except OSError:
    return exit_codes.EXIT_PORT_TAKEN
  listener.listen(1)
  if writes:
    write_whole(path, "")
  return wait_for(path)


def serve(job, index, spec, path):
  """A task with a TensorFlow server: the last worker adds on the ps; all wait for its file."""
  import tensorflow.compat.v1 as tf

  from tf1ps.compat import exit_codes
  tf.disable_v2_behavior()
  try:
    server = tf.train.Server(spec, job_name=job, task_index=index)
  except tf.errors.OpError:
    return exit_codes.EXIT_PORT_TAKEN
  if job == "worker" and index == len(spec["worker"]) - 1:
    with tf.device("/job:ps/task:0"):
      v = tf.get_variable("v", initializer=40, use_resource=True)
      step = v.assign_add(2)
    with tf.Session(server.target) as sess:
      sess.run(v.initializer)
      result = sess.run(step)
      devices = [device.incarnation for device in sess.list_devices()]
    print("v is %d, %d devices, %d incarnations" % (result, len(devices), len(set(devices))))
    write_whole(path, result)
  return wait_for(path)


# What looks at tasks from outside.


def wait_exit(server, process, limit=60.0):
  """Takes news of a fork server until a task has ended; returns its exit code."""
  def ended():
    server.take()
    return process.exit_code is not None
  wait_until(ended, limit)
  return process.exit_code


def read_output(process):
  """Reads a task's output to its end."""
  with os.fdopen(process.output, "rb") as output:
    return output.read()


def read_when_there(path, limit=60.0):
  """Returns the text of a file, once it is there."""
  assert wait_until(lambda: os.path.exists(str(path)), limit), "no %s" % path
  with open(str(path)) as text:
    return text.read()
