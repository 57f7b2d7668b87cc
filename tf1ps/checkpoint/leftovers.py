"""Removes what killed and failed saves have left in a checkpoint directory.

TensorFlow first writes a checkpoint under temporary names. These files stay after a kill, or on a
full disk:

  NAME.data-00000-of-00001.tempstate123, NAME.index.tempstate123   a part, the index
  NAME_temp/part-00000-of-00002..., NAME_temp_HEX/...              parts of a sharded save, in
                                                                   TensorFlow 2 and in 1.15
  checkpoint.tmpHEX, NAME.meta.tmpHEX, graph.pbtxt.tmpHEX          texts
  NAME.data-00000-of-00001 without NAME.index                      the index comes last, and an old
                                                                   checkpoint loses it first

A checkpoint with all of its files stays, even if the state file does not list it.
"""

from __future__ import annotations

import logging
import os
import re
from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints

_log = logging.getLogger("tf1ps")
_TEMPORARY = re.compile(r".+\.(tempstate\d+|tmp[0-9a-f]{32})$")
_FOLDER = re.compile(r".+_temp(_[0-9a-f]{32})?$")
_PART = re.compile(r"part(-\d+-of-\d+)?\.(data-\d+-of-\d+|index)(\.tempstate\d+)?$")


def remove_leftovers(checkpoint_dir: str) -> List[str]:
  """Removes the files of unfinished saves; returns their names.

  No process may be saving into the directory. An error is only logged, because a file that stays
  does no harm.
  """
  removed = []
  try:
    for name in _find(checkpoint_dir):
      path = os.path.join(checkpoint_dir, name)
      if tf.gfile.IsDirectory(path):
        tf.gfile.DeleteRecursively(path)
      else:
        tf.gfile.Remove(path)
      removed.append(name)
  except tf.errors.OpError as error:
    _log.info("files of unfinished saves stay in %s: %s", checkpoint_dir, error.message)
  if removed:
    _log.info("removed %d files of unfinished saves from %s, such as %s", len(removed),
              checkpoint_dir, removed[0])
  return removed


def _find(checkpoint_dir) -> List[str]:
  names = [name.rstrip("/") for name in tf.gfile.ListDirectory(checkpoint_dir)]
  leftovers = [name for name in names if _TEMPORARY.match(name)]
  leftovers += [name for name in names if _FOLDER.match(name)
            and _has_only_parts(os.path.join(checkpoint_dir, name))]
  latest = checkpoints.named_in(checkpoint_dir)
  for name in names:
    prefix = checkpoints.prefix_of_part(name)
    # If the latest checkpoint has no index, it is damaged: a warning says so, and its parts stay.
    if prefix and prefix + ".index" not in names and (
        latest is None or prefix != os.path.basename(latest)):
      leftovers.append(name)
  return sorted(leftovers)


def _has_only_parts(folder: str) -> bool:
  return tf.gfile.IsDirectory(folder) and all(
    _PART.match(name) for name in tf.gfile.ListDirectory(folder))
