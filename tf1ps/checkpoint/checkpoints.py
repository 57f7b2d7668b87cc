"""Finds the latest checkpoint of a directory, and passes over damaged checkpoints.

A directory has a state file, called `checkpoint`, that names the latest checkpoint and the
checkpoints that are kept. If this file is missing or damaged, TensorFlow treats the directory as
empty, and trains from step 0 into it. Some kinds of damage to a checkpoint raise an
OutOfRangeError, which elsewhere means the end of the data. Here:

1. `use_latest` gives the latest checkpoint to a function that reads it. A checkpoint is read once:
   the function itself detects damage, and raises a DamagedCheckpointError.
2. Then `use_latest` logs a warning that names the file, and tries the previous checkpoint. If the
   state file is damaged, it begins with the newest checkpoint of the directory. Files that the user
   must not read are not damaged: an error says so, and no step is lost.
3. If no checkpoint can be read, the error names all checkpoints. Training never silently restarts
   at step 0.
4. Checkpoints without a state file are an error. A crash never removes the file, so a user or a
   program removed it: the error names the newest readable checkpoint and the line that makes this
   checkpoint the latest.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Callable, List, Optional, TypeVar

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint.directory import CheckpointError
from tf1ps.compat import TIMING, error_line, temporary_path

_log = logging.getLogger("tf1ps")
_Result = TypeVar("_Result")

STATE_FILE = "checkpoint"

_DATA_FILE = re.compile(r"(.+)\.data-(\d{5})-of-(\d{5})$")
_STEP = re.compile(r"-(\d+)$")
_said = set()  # the warnings of this process, which looks at its directory several times


class DamagedCheckpointError(CheckpointError):
  """A file of a checkpoint is missing, cut short or changed."""


def use_latest(checkpoint_dir: str, use: Callable[[str], _Result]) -> Optional[_Result]:
  """Calls `use` with the latest checkpoint; if it is damaged, with the next older one, and so on.

  Args:
    checkpoint_dir: the directory.
    use: a function of a checkpoint's path without the endings of its files, such as
      "DIR/model.ckpt-100". It raises DamagedCheckpointError if the checkpoint cannot be read.

  Returns:
    The result of `use`. None if the directory does not exist, or has neither a state file nor
    checkpoints.

  Raises:
    CheckpointError: there are checkpoints but no state file, or no checkpoint can be read.
  """
  damages = []
  for prefix in _candidates(checkpoint_dir):
    try:
      return use(prefix)
    except DamagedCheckpointError as error:
      damages.append(str(error))
      _warn_once(f"{error}. It is passed over, for the checkpoint before it")
  if not damages:
    return None
  advice = "use another directory"
  if not _newest_first(checkpoint_dir):
    advice = f"delete the file {os.path.join(checkpoint_dir, STATE_FILE)}"
  raise CheckpointError(f"no checkpoint in {checkpoint_dir} can be used: {'; '.join(damages)}. "
                        f"To start from step 0, {advice}")


def latest_checkpoint(checkpoint_dir: str) -> Optional[str]:
  """Returns the path of the latest checkpoint that has all of its files; see `use_latest`."""
  return use_latest(checkpoint_dir, _check_complete)


def checkpoint_exists(prefix: str) -> bool:
  """Whether a checkpoint exists: its index, or the single file of TensorFlow's first format."""
  return tf.gfile.Exists(prefix + ".index") or tf.gfile.Exists(prefix)


def checkpoint_files(prefix: str) -> List[str]:
  """Returns the paths of a checkpoint's files: its parts, its meta graph, and last its index."""
  endings = [".meta", ".index", ""]  # "": the single file of TensorFlow's first format
  return _parts(prefix) + [prefix + each for each in endings if tf.gfile.Exists(prefix + each)]


def read_beside(prefix: str, suffix: str, parse: Callable[[str], _Result],
                otherwise: str) -> Optional[_Result]:
  """Reads a small file beside a checkpoint; if that fails, the file of an earlier checkpoint.

  Args:
    prefix: the checkpoint's path without the endings of its files.
    suffix: the end of the file's name, which follows that path.
    parse: makes the result from the text; it raises ValueError, KeyError, TypeError or
      AttributeError for a damaged text.
    otherwise: a sentence for the warning if no such file can be read.

  Returns:
    The result of `parse`; None, after a warning, if no such file can be read.
  """
  problems = []
  earlier = (other for other in _newest_first(os.path.dirname(prefix))
             if other != prefix and _is_before(other, prefix))
  for other in [prefix, *earlier]:
    try:
      with tf.gfile.GFile(other + suffix) as file:
        result = parse(file.read())
    except tf.errors.NotFoundError:
      problems.append("is missing")
    except tf.errors.OpError as error:
      problems.append(f"cannot be read ({error_line(error)})")
    except (ValueError, KeyError, TypeError, AttributeError):
      problems.append("is damaged")
    else:
      if problems:
        _warn_once(f"{prefix}{suffix} {problems[0]}. That of {os.path.basename(other)} is used")
      return result
  _warn_once(f"{prefix}{suffix} {problems[0]}. {otherwise}")
  return None


def name_latest(checkpoint_dir: str, name: str) -> None:
  """Writes a directory's state file, which then names a single checkpoint of the directory."""
  path = os.path.join(checkpoint_dir, STATE_FILE)
  temporary = temporary_path(path)
  with tf.gfile.GFile(temporary, "w") as file:
    file.write(f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n')
  tf.gfile.Rename(temporary, path, overwrite=True)


def listed_checkpoints(checkpoint_dir: str) -> List[str]:
  """Returns the existing checkpoints that the state file lists, oldest first."""
  try:
    state = tf.train.get_checkpoint_state(checkpoint_dir)
  except (tf.errors.OpError, ValueError):
    return []
  paths = [] if state is None else list(state.all_model_checkpoint_paths)
  return [path for path in paths if checkpoint_exists(path)]


def verify_checkpoint(prefix: str) -> None:
  """Reads every tensor of a checkpoint: 4 ms for a small checkpoint, about 0.2 s for 160 MB.

  Raises DamagedCheckpointError if the index or a part is missing, cut short or changed. Raises
  CheckpointError if the user of this process must not read a file of the checkpoint.
  """
  _check_complete(prefix)
  parts = _parts(prefix)
  data = parts[0] if len(parts) == 1 else f"one of {', '.join(parts)}"
  where = prefix + ".index"
  try:
    reader = tf.train.NewCheckpointReader(prefix)
    for name in sorted(reader.get_variable_to_shape_map()):
      where = f"{data} (tensor {name!r})"
      reader.get_tensor(name)
  except Exception as error:  # a part cut short: OutOfRangeError on 1.15, IndexError on 2.21
    _check_readable(prefix)
    raise DamagedCheckpointError(
      f"checkpoint {prefix} is damaged in {where}: {error_line(error)}") from error


def global_step_of_checkpoint(prefix: str) -> Optional[int]:
  """Returns the global step of a checkpoint: its tensor, else the number in its name, else None.

  Raises CheckpointError if the checkpoint cannot be read.
  """
  reader = open_checkpoint(prefix)
  try:
    if reader.has_tensor(tf.GraphKeys.GLOBAL_STEP):
      return int(reader.get_tensor(tf.GraphKeys.GLOBAL_STEP))
  except Exception as error:
    raise explain_checkpoint_error(prefix, error) from error
  return _step_in_name(prefix)


def open_checkpoint(prefix: str):
  """Returns a reader of a checkpoint (`tf.train.NewCheckpointReader`); raises CheckpointError."""
  try:
    return tf.train.NewCheckpointReader(prefix)
  except Exception as error:
    raise explain_checkpoint_error(prefix, error) from error


def explain_checkpoint_error(prefix: str, error: Exception) -> CheckpointError:
  """Returns the error for a checkpoint that cannot be restored because of an error of TensorFlow.

  If `verify_checkpoint` detects damage, this is its DamagedCheckpointError.
  """
  try:
    verify_checkpoint(prefix)
  except CheckpointError as damage:
    return damage
  return CheckpointError(f"checkpoint {prefix} cannot be restored: {error_line(error)}")


def check_shards_visible(prefix: str, wait_secs: float = 10.0) -> None:
  """Checks after a save that this task can see all files of the checkpoint.

  Files that another machine wrote into a shared directory must be visible within `wait_secs`.
  Raises CheckpointError if a file is not visible.
  """
  until = time.monotonic() + wait_secs
  missing = _missing_files(prefix)
  while missing and time.monotonic() < until:
    time.sleep(TIMING.fast_poll_interval)
    missing = _missing_files(prefix)
  if missing:
    raise CheckpointError(
      f"the chief does not see {', '.join(missing)}, although the save succeeded: a ps writes "
      "its part of a checkpoint on its own disk. Use a --checkpoint_dir that all tasks share, or a "
      "tf.train.Saver with sharded=False, which sends all parts to the chief")


def _candidates(checkpoint_dir: str) -> List[str]:
  """Returns the checkpoints to try, the latest first; raises CheckpointError."""
  state_file = os.path.join(checkpoint_dir, STATE_FILE)
  there = _newest_first(checkpoint_dir)
  if not tf.gfile.Exists(state_file):
    if there:
      raise CheckpointError(f"{checkpoint_dir} has checkpoints, but no state file {STATE_FILE!r}. "
                            + _advice(checkpoint_dir, there))
    return []
  latest = named_in(checkpoint_dir)
  if latest is None:
    problem = f"the state file {state_file} names no checkpoint: it is empty or damaged"
    if is_hidden(state_file):
      problem = f"this user must not read the state file {state_file}"
    if not there:
      raise CheckpointError(f"{problem}. There is no other checkpoint. To start from step 0, "
                            "delete this file")
    _warn_once(f"{problem}. The newest checkpoint of the directory is used, {there[0]}")
    return there
  candidates = [latest]
  listed = reversed(listed_checkpoints(checkpoint_dir))
  for prefix in [*listed, *(prefix for prefix in there if _is_before(prefix, latest))]:
    if prefix not in candidates:
      candidates.append(prefix)
  return candidates


def _is_before(prefix: str, latest: str) -> bool:
  """Whether a checkpoint has the same name as the latest checkpoint, and at most its step."""
  names = [os.path.basename(each) for each in (prefix, latest)]
  steps = [_step_in_name(name) for name in names]
  return None not in steps and steps[0] <= steps[1] and (
    _STEP.sub("", names[0]) == _STEP.sub("", names[1]))


def named_in(checkpoint_dir: str) -> Optional[str]:
  """Returns the latest checkpoint by the state file, or None if the file cannot be read."""
  try:
    state = tf.train.get_checkpoint_state(checkpoint_dir)
  except (tf.errors.OpError, ValueError):  # ValueError: the file is empty, or not text
    return None
  return None if state is None else state.model_checkpoint_path


def warn_of_newer(prefix: str) -> None:
  """Warns if the directory has a complete checkpoint of a later step than the restored one."""
  directory = os.path.dirname(prefix)
  if named_in(directory) != prefix:
    return  # the latest checkpoint is damaged, which has its own warning
  for other in _newest_first(directory):
    if not _is_before(prefix, other) or os.path.basename(other) == os.path.basename(prefix):
      continue
    if not _missing_files(other):
      name = os.path.basename(other)
      _warn_once(f"{os.path.join(directory, STATE_FILE)} makes {os.path.basename(prefix)} the "
                 f"latest checkpoint, although {name} is there. To go on with that one, end this "
                 f'job, and put only the line model_checkpoint_path: "{name}" into the file')
      return


def _warn_once(text: str) -> None:
  if text not in _said:
    _said.add(text)
    _log.warning("%s", text)


def _check_complete(prefix: str) -> str:
  """Returns the checkpoint; raises DamagedCheckpointError if one of its files is missing."""
  missing = _missing_files(prefix)
  if missing:
    raise DamagedCheckpointError(
      f"checkpoint {prefix} is not complete: {', '.join(missing)} is missing")
  return prefix


def _missing_files(prefix: str) -> List[str]:
  """Returns the missing files of a checkpoint: each part's name contains the number of parts."""
  if tf.gfile.Exists(prefix):
    return []  # the old format: one file
  missing = [] if tf.gfile.Exists(prefix + ".index") else [prefix + ".index"]
  parts = _parts(prefix)
  if not parts:
    return missing + [prefix + ".data-*"]
  count = int(_DATA_FILE.match(parts[0]).group(3))
  all_parts = [f"{prefix}.data-{index:05d}-of-{count:05d}" for index in range(count)]
  return missing + [part for part in all_parts if part not in parts]


def prefix_of_part(name: str) -> Optional[str]:
  """Returns the name of the checkpoint that a file has a part of; None for other files."""
  match = _DATA_FILE.match(name)
  return match.group(1) if match else None


def _check_readable(prefix: str) -> None:
  """Raises CheckpointError if the user of this process must not read a file of a checkpoint."""
  hidden = [path for path in checkpoint_files(prefix) if is_hidden(path)]
  if hidden:
    raise CheckpointError(f"checkpoint {prefix} is there, but this user must not read "
                          f"{', '.join(hidden)}. Give this user the right to read them")


def is_hidden(path: str) -> bool:
  """Whether there is a file that the user of this process must not read."""
  try:
    with tf.gfile.GFile(path, "rb") as file:
      file.read(1)
  except tf.errors.PermissionDeniedError:
    return True
  except tf.errors.OpError:
    pass
  return False


def _parts(prefix: str) -> List[str]:
  directory, name = os.path.split(prefix)
  parts = []
  for file in _list(directory):
    match = _DATA_FILE.match(file)
    if match and match.group(1) == name:
      parts.append(os.path.join(directory, file))
  return parts


def _list(directory: str) -> List[str]:
  try:
    return sorted(tf.gfile.ListDirectory(directory or "."))
  except tf.errors.OpError:
    return []


def _step_in_name(prefix: str) -> Optional[int]:
  match = _STEP.search(prefix)
  return int(match.group(1)) if match else None


def _newest_first(checkpoint_dir: str) -> List[str]:
  """Returns the checkpoints of a directory, sorted by step: a copy may have changed file times."""
  prefixes = [os.path.join(checkpoint_dir, file[:-len(".index")])
           for file in _list(checkpoint_dir) if file.endswith(".index")]
  return sorted(prefixes, key=lambda prefix: (_step_in_name(prefix) or 0, prefix), reverse=True)


def _advice(checkpoint_dir: str, candidates: List[str]) -> str:
  """Names the existing checkpoints, the newest readable checkpoint, and the way to choose it."""
  names = [os.path.basename(each) for each in candidates]
  more = f" and {len(names) - 5} more" if len(names) > 5 else ""
  there = f"There is {', '.join(names[:5])}{more}. "
  for candidate, name in zip(candidates, names):
    try:
      verify_checkpoint(candidate)
    except CheckpointError:
      continue
    return (f'{there}The newest readable one is {name}. To use it, put only the line '
            f'model_checkpoint_path: "{name}" into {os.path.join(checkpoint_dir, STATE_FILE)}. '
            "To start from step 0, use another directory")
  return f"{there}None of them is readable. To start from step 0, use another directory"
