"""Makes the files of a job, and writes them."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Callable, Dict, List, Sequence

from tf1ps.deploy import hosts, images
from tf1ps.deploy.request import DeployError, File, Request, checked

_RENDERERS: Dict[str, Callable[[Request], List[File]]] = {
  "jobset": images.render_jobset, "job": images.render_job, "slurm": hosts.render_slurm,
  "compose": images.render_compose, "systemd": hosts.render_systemd,
  "tfjob": images.render_tfjob}
TARGETS = tuple(_RENDERERS)


def render(request: Request) -> List[File]:
  """Returns the files of a job; nothing is written.

  Raises:
    DeployError: a value is wrong, or does not go with the target.
  """
  if request.target not in _RENDERERS:
    raise DeployError("--to must be one of %s, got %s" % (", ".join(TARGETS), request.target))
  request = checked(request)
  return _RENDERERS[request.target](request)


def write(files: Sequence[File], folder: str, force: bool = False) -> List[str]:
  """Writes files into a folder, which it makes; returns their paths.

  All files are written beside their places first: after an error, each is whole.

  Args:
    files: from `render`.
    folder: the folder.
    force: whether files that are there and differ are replaced; else none is written.

  Raises:
    DeployError: a file is there, or cannot be written.
  """
  paths = [os.path.join(folder, file.name) for file in files]
  parts = [path + ".part" for path in paths]
  try:
    for path, file in zip(paths, files):
      if os.path.isdir(path):
        raise DeployError("%s is a folder: remove it, or name another --output_dir" % path)
      if os.path.lexists(path) and not force and (
          pathlib.Path(path).read_text(encoding="utf-8", errors="replace") != file.text):
        raise DeployError("%s is there already, with other content: --force replaces it, and "
                          "--output_dir names another folder" % path)
    os.makedirs(folder, exist_ok=True)
    for part, file in zip(parts, files):
      with open(part, "w", encoding="utf-8") as stream:
        stream.write(file.text)
    for part, path in zip(parts, paths):
      os.replace(part, path)
  except OSError as error:
    raise DeployError("%s: %s" % (error.filename or folder, error.strerror)) from error
  finally:
    for part in parts:
      with contextlib.suppress(OSError):  # it has its place, or was not made
        os.remove(part)
  return paths
