"""Reports the error that ends a program.

An error that tf1ps raises names the wrong value, so a line is enough. An error from the user's
code, or an unexpected error, also needs its traceback. If the error came from the user's code, the
traceback has only the user's lines.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import signal
import traceback
from typing import Iterable, Optional

from tf1ps.compat import Error, error_line, is_installed_file, near_path
from tf1ps.training import OLD_FLAGS

# The types of errors for wrong values in tf1ps and its libraries; their text names the value.
_EXPECTED = (ValueError, RuntimeError, OSError)
_TF1PS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FOLDED = "  (--verbosity=info shows the frames of TensorFlow and tf1ps as well)\n"
# Hints for error messages of Python and TensorFlow.
_HINTS = (
  (r"Field \d+ in record \d+ is not a valid",
   "If the file begins with a header, skip its line, as with header_lines=1"),
  (r"module 'tensorflow' has no attribute",
   "Does the program `import tensorflow.compat.v1 as tf`?"),
  (r"is not available with Keras 3",
   "Install tf_keras, and set TF_USE_LEGACY_KERAS=1 in the environment of every task; or write "
   "`import tf1ps.v1 as tf`"),
  (r"lacks the model's variable '\S+/(Momentum|Adam|Adagrad|RMSProp|Ftrl)(_\d+)?'",
   "Was it trained with another --optimizer?"),
)


class UsageError(Error, ValueError):
  """A command line, or a call, is wrong."""


def no_such_flag(name: str, known: Iterable[str], program: str) -> str:
  """Returns the text for a flag that a program lacks.

  Args:
    name: the flag, without dashes.
    known: the names of the program's flags.
    program: the program's name, such as "tf1ps-local".
  """
  advice = OLD_FLAGS.get(name, OLD_FLAGS.get(name[len("no"):]))
  if advice:
    return "--%s is not a flag any more: %s (see %s --help)" % (name, advice, program)
  near = difflib.get_close_matches(name, list(known), n=1)
  return "--%s is not a flag%s (see %s --help)" % (
    name, "; did you mean --%s?" % near[0] if near else "", program)


def show_traceback(error: BaseException, program, always: bool = False) -> bool:
  """Prints the traceback of an error, unless a line is enough.

  The caller prints the `line` of the error below, so a folded traceback ends without the reason.

  Args:
    error: the caught error.
    program: the user's `Program`, or None if none was imported.
    always: whether every error except a `UsageError` gets its traceback.

  Returns:
    Whether the traceback was printed.
  """
  if isinstance(error, UsageError):
    return False
  if isinstance(error, _EXPECTED) and not always and not came_through(error, program):
    return False
  own = _own_frames(error, program)
  if own and not always:
    text = ["Traceback (most recent call last):\n", *traceback.format_list(own), _FOLDED]
  elif hasattr(error, "node_def") and program is not None and not always:
    # For example an operation of a dataset's function: no frame shows the place of the function.
    text = ["A step failed.", _FOLDED]
  else:
    text = traceback.format_exception(type(error), error, error.__traceback__)
  logging.getLogger("tf1ps").error("%s", "".join(text).rstrip())
  return True


def came_through(error: BaseException, program) -> bool:
  """Whether an error came from the user's code: the program, or other code that the program called.

  Args:
    error: the caught error.
    program: the user's `Program`, or None if none was imported.
  """
  return bool(_of_program(traceback.extract_tb(error.__traceback__), program))


def comes_again(error: BaseException, program) -> bool:
  """Whether an error before the first step would also end another start.

  It would if the error came from the user's code or from a wrong value. A missing file, server or
  task may be there the next time.
  """
  passes = isinstance(error, (OSError, RuntimeError, MemoryError)) or hasattr(error, "error_code")
  return not passes or came_through(error, program)


def _own_frames(error, program) -> list:
  """Returns the user's frames: where the error came from, else where its operation was created."""
  frames = _of_program(traceback.extract_tb(error.__traceback__), program)
  made_at = getattr(getattr(error, "op", None), "traceback", None)
  if frames or made_at is None:
    return frames
  # In TensorFlow 1.15 the frames are tuples.
  made_at = [traceback.FrameSummary(*frame[:3]) if isinstance(frame, tuple) else
             traceback.FrameSummary(frame.filename, frame.lineno, frame.name) for frame in made_at]
  # The frames of the script that starts a task come before the frames of tf1ps.
  ours = [i for i, frame in enumerate(made_at) if frame.filename.startswith(_TF1PS)]
  return _of_program(made_at[ours[0]:] if ours else made_at, program)


def _of_program(frames, program) -> list:
  """Returns the frames of the user's code."""
  if program is None:
    return []
  folder = os.path.dirname(os.path.abspath(program.module.__file__)) + os.sep
  return [frame for frame in frames
          if os.path.isabs(frame.filename) and not frame.filename.startswith(_TF1PS) and (
            frame.filename.startswith(folder) or not is_installed_file(frame.filename))]


def line(error: BaseException, program=None) -> str:
  """Returns an error as a line: its place in the program if known, its type, its text, a hint."""
  frames = _own_frames(error, program)
  place = ""
  if frames:
    place = "%s:%d in %s: " % (
      os.path.basename(frames[-1].filename), frames[-1].lineno, frames[-1].name)
  if isinstance(error, SystemExit):
    return "%sthe program called sys.exit(%r)" % (place, error.code)
  text = "%s: %s" % (type(error).__name__, error_line(error))
  text += near_file(error)
  hints = [hint for pattern, hint in _HINTS if re.search(pattern, text)]
  hints += filter(None, [gpu_hint(error)])
  if hints:
    from tf1ps.replication import ReplicaLostError  # late: a command line answers before TensorFlow

    # The text of a ReplicaLostError has another task's error, with the advice for that error.
    hints = [] if isinstance(error, ReplicaLostError) else hints
  return place + ". ".join([text.rstrip(".") if hints else text, *hints])


def gpu_hint(error: BaseException) -> str:
  """Returns a sentence about an error of a GPU, with the remedy; "" for other errors."""
  from tf1ps.cluster import explain_gpu_error  # late: most programs end without an error

  text = explain_gpu_error(error)
  return text[:1].upper() + text[1:]


def near_file(error: BaseException) -> str:
  """Returns "; did you mean ...?" for an error that names a missing file, or ""."""
  path = getattr(error, "filename", None) if isinstance(error, FileNotFoundError) else None
  if hasattr(error, "error_code"):  # an error of TensorFlow
    named = re.search(r"(\S+); No such file or directory", error_line(error))
    path = named and named.group(1)
  return near_path(path) if isinstance(path, str) and not os.path.exists(path) else ""


def signal_of(error: BaseException) -> Optional[int]:
  """Returns the signal n of a SystemExit(128 + n), or SIGINT for Ctrl-C; None for other errors."""
  if isinstance(error, KeyboardInterrupt):
    return int(signal.SIGINT)
  code = error.code if isinstance(error, SystemExit) else None
  return code - 128 if isinstance(code, int) and 128 < code <= 192 else None
