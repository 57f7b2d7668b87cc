"""Runs tf1ps-task as its console script would: `python -m tests.launch.ssh_program FLAGS`."""
import sys

from tf1ps.cli import app, task

if __name__ == "__main__":
  app.leave(task.run(sys.argv[1:]))
