"""Makes the files of a job, and writes them."""

from __future__ import annotations

import os
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
    raise DeployError("--to=%s is none of %s" % (request.target, ", ".join(TARGETS)))
  request = checked(request)
  return _RENDERERS[request.target](request)


def write(files: Sequence[File], folder: str, force: bool = False) -> List[str]:
  """Writes files into a folder, which it makes; returns their paths.

  Args:
    files: from `render`.
    folder: the folder.
    force: whether files that are there and differ are replaced. Without it no file is written if
      there is one.

  Raises:
    DeployError: a file is there, or cannot be written.
  """
  paths = [os.path.join(folder, file.name) for file in files]
  try:
    for path, file in zip(paths, files):
      if os.path.lexists(path) and not force and _text_of(path) != file.text:
        raise DeployError("%s is there already, with other content: --force replaces it, and "
                          "--output_dir names another folder" % path)
    os.makedirs(folder, exist_ok=True)
    for path, file in zip(paths, files):
      with open(path, "w", encoding="utf-8") as stream:
        stream.write(file.text)
  except OSError as error:
    raise DeployError("%s: %s" % (error.filename or folder, error.strerror)) from error
  return paths


def _text_of(path: str) -> str:
  with open(path, encoding="utf-8", errors="replace") as stream:
    return stream.read()
