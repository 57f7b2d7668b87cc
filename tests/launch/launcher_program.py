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
  job = local.local_job(
    jobs.count("ps"), jobs.count("worker"), "evaluator" in jobs,
    **{name: int(number) for name, number in numbers.items()})
  return local.run_tasks(
    job, lambda addresses: local_tasks,
    preload=[text for text in argv if ":" not in text and "=" not in text]).exit_code


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
