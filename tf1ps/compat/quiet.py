"""TensorFlow's own start-up noise: off by default, back when it is asked for.

Most of it comes from C++ and is decided by environment variables that TensorFlow reads while it is
imported, so this module must run before that:

1. `quiet_environment` sets the variables, leaving alone what the user has set.
2. TensorFlow is imported.
3. `quiet_python` turns down the Python side, before a deprecated call can speak.

What TensorFlow 2.21 says before its own log is set up (that there is no GPU, for one) obeys no
variable: `held_back` keeps what comes out of file descriptor 2 for as long as the import, or the
start of a server, takes, and gives it back if that fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from typing import MutableMapping, Optional

# What a user may ask for, and TF_CPP_MIN_LOG_LEVEL for it. "warning", the default, silences
# TensorFlow's warnings too: 14 of them come from a classic input pipeline alone.
_CPP_LEVELS = {"debug": "0", "info": "0", "warning": "2", "error": "2", "fatal": "3"}
VERBOSITIES = tuple(_CPP_LEVELS)

_PYTHON_LEVELS = {
  "debug": logging.DEBUG,
  "info": logging.INFO,
  "warning": logging.ERROR,
  "error": logging.ERROR,
  "fatal": logging.FATAL,
}


def quiet_environment(
  verbosity: str = "warning", environ: Optional[MutableMapping[str, str]] = None
) -> None:
  """Sets what TensorFlow reads while it is imported.

  Args:
    verbosity: "debug", "info", "warning", "error" or "fatal"; with the first two TensorFlow's
      start-up noise is shown.
    environ: the environment to change, `os.environ` by default. A variable that is set already is
      left as it is.

  Raises:
    ValueError: another verbosity.
  """
  if verbosity not in _CPP_LEVELS:
    raise ValueError(
      "verbosity must be one of %s, got %r" % (", ".join(VERBOSITIES), verbosity)
    )
  environ = os.environ if environ is None else environ
  environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _CPP_LEVELS[verbosity])
  if verbosity not in ("debug", "info"):
    # oneDNN announces itself at every import, and changes the last digits of results.
    environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@contextlib.contextmanager
def held_back(verbosity: str = "warning"):
  """Holds back what this process writes to file descriptor 2; shows it if the block raises.

  Args:
    verbosity: with "debug" and "info" nothing is held back.
  """
  if verbosity in ("debug", "info"):
    yield
    return
  sys.stderr.flush()
  saved = os.dup(2)
  with tempfile.TemporaryFile() as kept:
    os.dup2(kept.fileno(), 2)
    try:
      yield
    except BaseException:
      sys.stderr.flush()
      kept.seek(0)
      os.write(saved, kept.read())
      raise
    finally:
      sys.stderr.flush()
      os.dup2(saved, 2)
      os.close(saved)


def quiet_python(verbosity: str = "warning") -> None:
  """Sets the level of TensorFlow's Python log; imports TensorFlow."""
  import tensorflow.compat.v1 as tf

  tf.logging.set_verbosity(_PYTHON_LEVELS[verbosity])
