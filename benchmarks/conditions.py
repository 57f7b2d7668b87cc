"""The conditions under which figures were measured: processors, versions, and duration."""
from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from typing import Optional

from benchmarks import interleaving, systems
from tf1ps.cluster import visible_gpus

_CODE = ("import sys, numpy, tensorflow as tf;"
         "print('Python %s, TensorFlow %s, numpy %s' % ("
         "sys.version.split()[0], tf.__version__, numpy.__version__))")


def legacy_python(path: str) -> Optional[str]:
  """Returns a Python with TensorFlow 1 for the classic script, or None after logging the reason."""
  if not path:
    interleaving.say("no --legacy_python: the classic script on TensorFlow 1.15 is left out")
    return None
  version = systems.has_tensorflow(path)
  if version is None or not version.startswith("1."):
    interleaving.say("%s has %s: the classic script on TensorFlow 1.15 is left out" % (
      path, "TensorFlow " + version if version else "no TensorFlow"))
    return None
  return path


def of(args) -> dict:
  """The conditions of a run: its date, machine, versions and pace, as its rows keep them."""
  pythons = [sys.executable] + ([args.legacy_python] if args.legacy_python else [])
  return {
    "date": time.strftime("%Y-%m-%d", time.gmtime()),
    "machine": "%d processors, %s%s, Linux %s" % (
      len(os.sched_getaffinity(0)), _processor(), _gpus(), platform.release()),
    "versions": [_version(python) for python in pythons],
    "pace": "%d rounds of %g s, after %g s" % (args.rounds, args.seconds, args.settle),
    "losses": "after %d minibatches, the classic script's spread over %d seeds%s" % (
      args.minibatches, args.seeds, "; --quick, so no figure means anything" if args.quick else ""),
  }


def text(run: dict) -> str:
  """The conditions, as lines of Markdown."""
  return "\n".join("- " + line for line in (
    "%s, %s; load %.1f at the start" % (run["date"], run["machine"], os.getloadavg()[0]),
    *run["versions"], "%s; losses %s" % (run["pace"], run["losses"])))


def _processor():
  with open("/proc/cpuinfo") as file:
    found = re.search(r"model name\s*:\s*(.+)", file.read())
  return found.group(1) if found else platform.machine()


def _gpus():
  """The names of the GPUs, each after a comma."""
  if not visible_gpus() or shutil.which("nvidia-smi") is None:
    return ""
  done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                        stdout=subprocess.PIPE, universal_newlines=True)
  return "".join(", " + name for name in done.stdout.splitlines())


def _version(python):
  done = subprocess.run([python, "-c", _CODE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                        env=systems.environment(), universal_newlines=True, timeout=120)
  if done.returncode:
    return "%s, which has no TensorFlow" % python
  return done.stdout.strip().splitlines()[-1]
