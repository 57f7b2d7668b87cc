"""What the programs of this folder share: an address, a process, and the lines for __main__.py."""
from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time


def address():
  """Returns "localhost:PORT" with a port that is free now."""
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    return "localhost:%d" % free.getsockname()[1]


def ready():
  """Says that what follows is what the program shows; from here on it may take a minute."""
  print("ready", flush=True)


def say(text):
  """Prints what the program has seen."""
  print("seen: " + text, flush=True)


def leave(text):
  """Prints what the program has seen, and ends without TensorFlow's destructors."""
  say(text)
  os._exit(0)


def within(seconds, function):
  """Calls a function in a thread; returns its result or its error, or "nothing" after a time."""
  found = []

  def call():
    try:
      found.append(function())
    except Exception as error:
      found.append(error)

  thread = threading.Thread(target=call, daemon=True)
  thread.start()
  thread.join(seconds)
  return found[0] if found else "nothing"


def name(result):
  """Returns the name of an error's class; another result as a text."""
  return type(result).__name__ if isinstance(result, Exception) else str(result)


def start_ps(jobs):
  """Starts ps 0 of a cluster as a process of its own; returns it when its port accepts."""
  code = ("import tensorflow.compat.v1 as tf, threading, os\n"
          "tf.train.Server(%r, 'ps', 0)\n"
          "threading.Timer(120, lambda: os._exit(1)).start()\n" % jobs)
  process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
  host, _, port = jobs["ps"][0].partition(":")
  for _ in range(600):
    with socket.socket() as client:
      if client.connect_ex(("127.0.0.1", int(port))) == 0:
        return process
    time.sleep(0.1)
  raise RuntimeError("the ps did not come")
