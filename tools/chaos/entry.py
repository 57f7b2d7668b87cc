"""How a process of a run begins; nothing here imports TensorFlow, as the run itself does not."""

from __future__ import annotations

import importlib
from typing import NamedTuple, Optional, Sequence

from tools.chaos.worlds import Place


class Settings(NamedTuple):
  """What a process of a job must know."""

  history: str  # path
  job: str
  task: str
  index: int
  mode: str  # async or sync
  examples: int
  pause: float  # seconds of a step, until the gate opens
  gate: str  # path of a file: it exists once the workers shall finish
  stop: str  # path of a file: it exists once the clients of the queue shall end
  checkpoint_dir: str
  namespace: str = ""  # the network namespace
  breaks: Sequence[str] = ()  # see breaks.py
  place: Optional[Place] = None  # of a task in a world


def call(module: str, function: str, *args):
  """Calls a function of a module of this package."""
  return getattr(importlib.import_module("tools.chaos." + module), function)(*args)
