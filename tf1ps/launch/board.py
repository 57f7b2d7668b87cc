"""TensorBoard as a task beside a job: it shows the job's event files until the launcher ends it."""

from __future__ import annotations

import importlib.util
import logging
import signal

from tf1ps.launch.fork_server import LocalTask

_NAME = "tensorboard"


def has_board() -> bool:
  """Whether the package tensorboard is installed."""
  return importlib.util.find_spec("tensorboard") is not None


def board_task(directory: str) -> LocalTask:
  """Returns the task that shows the event files below a directory, which may come later."""
  return LocalTask(_NAME, serve_board, (directory,), {"CUDA_VISIBLE_DEVICES": "-1"})


def serve_board(directory: str) -> None:
  """Serves TensorBoard on a free port of 127.0.0.1 until a signal ends this process."""
  from tensorboard import program, version

  for name in ("tensorboard", "werkzeug"):
    logging.getLogger(name).setLevel(logging.ERROR)
  board = program.TensorBoard()
  argv = [_NAME, "--logdir=" + directory, "--host=127.0.0.1", "--port=0", "--reload_interval=5"]
  if not version.VERSION.startswith("1."):
    argv.append("--load_fast=false")  # the fast loader is a process of its own
  board.configure(argv=argv)
  print("TensorBoard at %s shows %s until the job ends; afterwards: tensorboard --logdir=%s" % (
    board.launch(), directory, directory), flush=True)
  while True:
    signal.pause()
