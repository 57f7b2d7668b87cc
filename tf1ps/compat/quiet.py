"""TensorFlow's own start-up messages: off by default, on by request.

Most of them come from C++ and depend on environment variables that TensorFlow reads while it is
imported, so this module must run before that:

1. `quiet_environment` sets the variables; it leaves the user's values alone.
2. TensorFlow is imported.
3. `quiet_python` sets the level of TensorFlow's Python log, before a deprecated call logs.

TensorFlow 2.21 writes some messages before its log is set up, such as that about a missing GPU;
no variable turns them off. `held_back` holds the output of file descriptor 2 back during the import
or the start of a server, and shows it if that fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from typing import MutableMapping, Optional

# TF_CPP_MIN_LOG_LEVEL by verbosity. "warning", the default, silences TensorFlow's warnings too: 14
# of them come from a classic input pipeline alone.
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
  """Sets the variables that TensorFlow reads while it is imported.

  Args:
    verbosity: "debug", "info", "warning", "error" or "fatal"; with the first two TensorFlow's
      start-up noise is shown.
    environ: the environment to change, `os.environ` by default. A variable that is set already
      keeps its value.

  Raises:
    ValueError: another verbosity.
  """
  if verbosity not in _CPP_LEVELS:
    raise ValueError("verbosity must be one of %s, got %r" % (", ".join(VERBOSITIES), verbosity))
  environ = os.environ if environ is None else environ
  environ.setdefault("TF_CPP_MIN_LOG_LEVEL", _CPP_LEVELS[verbosity])
  if verbosity not in ("debug", "info"):
    # oneDNN logs a message at every import, and changes the last digits of results.
    environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


@contextlib.contextmanager
def held_back(verbosity: str = "warning"):
  """Holds back this process's output to file descriptor 2; shows it if the block raises.

  Args:
    verbosity: with "debug" and "info" nothing is held back.
  """
  if verbosity in ("debug", "info"):
    yield
    return
  sys.stderr.flush()
  try:
    kept = tempfile.TemporaryFile()
  except OSError:  # no directory for it can be written: the output is shown
    yield
    return
  saved = os.dup(2)
  with kept:
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


@contextlib.contextmanager
def quiet_import():
  """Leaves out what TensorFlow logs at every start, for its import by a program of the user's own.

  Warnings and errors that come later are shown, the speed stays, and TF_CPP_MIN_LOG_LEVEL=0 in the
  environment shows all.
  """
  level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
  with held_back("info" if level == "0" else "warning"):
    yield


def import_quietly():
  """Imports TensorFlow by `quiet_import`; returns tensorflow.compat.v1.

  TensorFlow's Python log shows each warning once.
  """
  if "tensorflow" not in sys.modules:
    with quiet_import():
      import tensorflow.compat.v1 as unused_tf  # noqa: F401
  import tensorflow.compat.v1 as tf
  from absl import logging as absl_logging

  handler = absl_logging.get_absl_handler()
  if _is_first not in handler.filters:
    handler.addFilter(_is_first)
  return tf


def _is_first(record: logging.LogRecord) -> bool:
  """Whether absl's handler, which tf.app.run installs, is the first to show a record on stderr.

  TensorFlow's logger has a handler of its own, and passes each record on.
  """
  from absl import logging as absl_logging

  shown = any(isinstance(handler, logging.StreamHandler) for handler in logging.getLogger(
    "tensorflow").handlers)
  stream = absl_logging.get_absl_handler().python_handler.stream
  return record.name != "tensorflow" or not shown or stream not in (sys.stdout, sys.stderr)


def quiet_python(verbosity: str = "warning") -> None:
  """Sets the level of TensorFlow's Python log; imports TensorFlow."""
  import tensorflow.compat.v1 as tf

  tf.logging.set_verbosity(_PYTHON_LEVELS[verbosity])
