"""Under which conditions figures were measured: processors, versions, and how long."""
from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from typing import Optional

from benchmarks import interleaving, systems

_CODE = ("import sys, numpy, tensorflow as tf;"
         "print('Python %s, TensorFlow %s, numpy %s' % ("
         "sys.version.split()[0], tf.__version__, numpy.__version__))")


def legacy_python(path: str) -> Optional[str]:
  """A Python with TensorFlow 1 to run the classic script with, or None, and then it is said why."""
  if not path:
    interleaving.say("no --legacy_python: the classic script on TensorFlow 1.15 is left out")
    return None
  version = systems.has_tensorflow(path)
  if version is None or not version.startswith("1."):
    interleaving.say("%s has %s: the classic script on TensorFlow 1.15 is left out" % (
      path, "TensorFlow " + version if version else "no TensorFlow"))
    return None
  return path


def text(args) -> str:
  """The conditions, as lines of Markdown."""
  pythons = [sys.executable] + ([args.legacy_python] if args.legacy_python else [])
  lines = ["- %d processors: %s; Linux %s; load %.1f at the start" % (
    len(os.sched_getaffinity(0)), _processor(), platform.release(), os.getloadavg()[0])]
  lines += ["- " + _version(python) for python in pythons]
  lines.append("- %d interleaved rounds of %g s each, after %g s; losses after %d minibatches, the "
               "classic script's spread over %d seeds%s" % (
                 args.rounds, args.seconds, args.settle, args.minibatches, args.seeds,
                 "; --quick, so no figure means anything" if args.quick else ""))
  return "\n".join(lines)


def _processor():
  with open("/proc/cpuinfo") as file:
    found = re.search(r"model name\s*:\s*(.+)", file.read())
  return found.group(1) if found else platform.machine()


def _version(python):
  done = subprocess.run([python, "-c", _CODE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                        env=systems.environment(), universal_newlines=True, timeout=120)
  if done.returncode:
    return "%s, which has no TensorFlow" % python
  return done.stdout.strip().splitlines()[-1]
