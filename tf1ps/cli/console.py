"""The console scripts: `tf1ps local` and `tf1ps-local` both call `local`, and so on.

From here on, a signal ends a program with a line and the signal's exit code. So slow imports come
after the handlers.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import signal
import sys

from tf1ps import version
from tf1ps.compat import EXIT_FAILED, EarlyEnd, Error

# Each program is a module of this room that defines `run`.
PROGRAMS = {
  "local": "train a program on this machine: tf1ps local digits.py --num_workers=2",
  "run": "run an unmodified TensorFlow 1 program",
  "doctor": "list what fails in TensorFlow 1 programs today, without running them",
  "status": "print the status of a running job",
  "top": "show the status of a running job, drawn again every second",
  "predict": "predict with a trained program, or export it",
  "ssh": "run a job on a few machines by ssh",
  "deploy": "write the files that start a job under a scheduler",
  "certs": "make the certificates of encrypted links",
  "reset": "clear the state of a job on its ps",
  "docs": "list the pages of the documentation, or print a page",
  "worker": "the worker of a job on several machines",
  "ps": "the ps of a job on several machines",
  "evaluator": "evaluate the checkpoints of a job",
  "task": "the task of a job that its scheduler's environment names",
}
_READ = ("docs", "doctor")
# A server's threads, or an open session, would delay an ordinary end of these programs.
_WITH_SESSIONS = ("evaluator", "ps", "reset", "status", "task", "top", "worker")


def main() -> None:
  """The console script `tf1ps`."""
  name = sys.argv[1] if len(sys.argv) > 1 else "--help"
  if name in PROGRAMS:
    del sys.argv[1]
    _main(name)
  elif name in ("--help", "-h", "--help=all"):
    print("tf1ps: TensorFlow-1 parameter-server training.\n\n  tf1ps NAME ARGUMENTS...\n\n%s\n\n"
          "`tf1ps NAME --help` says more." % "\n".join(
            "  %-10s %s" % entry for entry in PROGRAMS.items()))
  elif name == "--version":
    print("tf1ps", version.__version__)
  else:
    near = difflib.get_close_matches(name, PROGRAMS, n=1)
    advice = "; did you mean `tf1ps %s`?" % near[0] if near else ""
    if name.endswith(".py"):
      advice = "; to train this program: tf1ps local " + name
    sys.exit("tf1ps: %s is not a subcommand%s (see tf1ps --help)" % (name, advice))


def _main(name: str) -> None:
  EarlyEnd("tf1ps-" + name).install()
  if name in _READ:
    # These programs end quietly by SIGPIPE when their reader, such as `head`, ends. Streams that
    # drop text (see compat/streams.py) would lose findings while a reader such as `less` waits.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  try:
    program = importlib.import_module("tf1ps.cli." + name)
  except Error as error:  # the environment has an error, such as a wrong TF1PS_TIMING
    print("tf1ps-%s: %s" % (name, error), file=sys.stderr)
    sys.exit(EXIT_FAILED)
  code = program.run(sys.argv[1:])
  if name in _WITH_SESSIONS:
    importlib.import_module("tf1ps.cli.app").leave(code)
  sys.exit(code)


globals().update((name, functools.partial(_main, name)) for name in PROGRAMS)
