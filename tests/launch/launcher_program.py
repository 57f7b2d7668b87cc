"""A launcher for the tests: `launcher_program.py [MODULE] [NAME=N] NAME:FUNCTION:ARG,ARG ...`."""
from __future__ import annotations

import sys

from tests.launch import sample_tasks
from tf1ps.launch import fork_server, local


def make_task(text):
  name, function, args = text.split(":")
  args = [float(arg) if arg[0].isdigit() else arg for arg in args.split(",") if arg]
  return fork_server.LocalTask(name, getattr(sample_tasks, function), tuple(args))


def main(argv):
  local_tasks = [make_task(text) for text in argv if ":" in text]
  numbers = dict(text.split("=") for text in argv if "=" in text and ":" not in text)
  jobs = [task.name.split()[0] for task in local_tasks]
  return local.run_tasks(
      lambda addresses: local_tasks, jobs.count("ps"), jobs.count("worker"), "evaluator" in jobs,
      None, preload=[text for text in argv if ":" not in text and "=" not in text],
      **{name: int(number) for name, number in numbers.items()}).exit_code


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
