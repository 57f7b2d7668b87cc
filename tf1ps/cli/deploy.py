"""tf1ps-deploy: writes the files that start a job under a scheduler.

    tf1ps-deploy render --to=slurm --program=train.py --num_workers=4 -- --steps=500

Exit codes: 0, the files are written; 1, a value is wrong or a file already exists, and no file is
written; 2, the command line is wrong. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import List

from tf1ps import deploy, version
from tf1ps.compat import EXIT_FAILED
from tf1ps.training import of_program

_NAME = "tf1ps-deploy"
_BUILD = ["put the wheel of tf1ps{program} into {folder}, and then:",
          "  docker build --tag {image} {folder} && docker push {image}"]
_NEXT = {  # after the files are written
  "jobset": _BUILD + ["  kubectl apply --filename {folder}/jobset.yaml"],
  "job": _BUILD + ["  kubectl apply --filename {folder}/job.yaml"],
  "tfjob": _BUILD + ["  kubectl apply --filename {folder}/tfjob.yaml"],
  "compose": _BUILD[:1] + ["  cd {folder} && docker compose up --build --detach"],
  "slurm": ["next:", "  sbatch {first}"],
  "systemd": ["copy each unit to /etc/systemd/system of its host; the first lines of a unit name "
              "the host and the command"],
}


def run(argv: List[str]) -> int:
  """Runs the program; returns the exit code."""
  ours, flags = argv, []
  if "--" in argv:
    ours, flags = argv[:argv.index("--")], argv[argv.index("--") + 1:]
  try:
    given = _parser().parse_args(ours)
  except SystemExit as error:  # --help, or a wrong flag, whose error argparse has printed
    return error.code or 0
  try:
    _check_values(flags)
    values = {name: value for name, value in vars(given).items() if name in deploy.Request._fields}
    request = deploy.Request(flags=tuple(flags), **values)
    files = deploy.render(request)
    folder = given.output_dir or "deploy/" + given.target
    paths = deploy.write(files, folder, given.force)
  except deploy.DeployError as error:
    print("%s: %s" % (_NAME, error), file=sys.stderr)
    return EXIT_FAILED
  for path in paths:
    print("wrote " + path)
  words = {"folder": shlex.quote(folder), "first": shlex.quote(paths[0]),
           "image": request.image,
           "program": " and " + request.program if request.is_file else ""}
  for line in _NEXT[request.target]:
    print(line.format(**words))
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Writes the files that start a job under a scheduler. `tf1ps docs deploying` "
                "takes a job to each of them.")
  parser.add_argument("--version", action="version", version="%s %s" % (_NAME, version.__version__))
  commands = parser.add_subparsers(dest="command", metavar="render")
  commands.required = True
  render = commands.add_parser(
    "render", allow_abbrev=False, help="write the files of a job from templates",
    usage="%s render --to=TARGET --program=PROGRAM [flags] [-- flags of the program]" % _NAME,
    description="Writes the files of a job. It checks all values first, and writes no file if a "
                "value is wrong. The flags after -- go to every task.")
  add = render.add_argument
  add("--to", required=True, dest="target", choices=deploy.TARGETS, metavar="TARGET",
      help="one of %s" % ", ".join(deploy.TARGETS))
  add("--program", required=True, help="a module's name or the path of a .py file")
  add("--name", default="", help="the name of the job (default: the program's)")
  add("--num_ps", type=int, metavar="N", help="ps tasks (default: 1, or 0 with all-reduce)")
  add("--num_workers", type=int, metavar="N", help="workers, the chief among them (default: 2)")
  add("--evaluator", action="store_true", help="add an evaluator")
  add("--ps_hosts", default="", metavar="HOST:PORT,...", help="systemd: the addresses of the ps")
  add("--worker_hosts", default="", metavar="HOST:PORT,...",
      help="systemd: the addresses of the workers")
  add("--checkpoint_dir", metavar="DIR", help="where the tasks see the checkpoints: a folder that "
      "they share, or a URL")
  add("--volume", metavar="NAME", help="containers: the PersistentVolumeClaim, or for compose the "
      "volume or absolute path, that is mounted at --checkpoint_dir")
  add("--image", help="containers: the image (default for compose: the job's name)")
  add("--cpus", metavar="N", help="processors of each task")
  add("--memory", metavar="SIZE", help="memory of each task, such as 4Gi")
  add("--gpus", type=int, default=0, metavar="N", help="GPUs of each worker")
  add("--output_dir", metavar="DIR", help="the folder of the files (default: deploy/TARGET)")
  add("--force", action="store_true", help="replace files that are there")
  return parser


def _check_values(flags: List[str]) -> None:
  """Refuses a bad value of a flag of tf1ps; the program checks its own flags."""
  options = {option.name: option for option in of_program("task")}
  for text in flags:
    name, has_value, value = text.partition("=")
    option = options.get(name.lstrip("-"))
    if option is None or option.is_switch and not has_value:
      continue
    if not has_value:
      raise deploy.DeployError("--%s after -- has no value: write --%s=VALUE" % (
        option.name, option.name))
    try:
      problem = option.problem_of(option.parse(value))
    except ValueError as error:
      problem = str(error) if option.parse not in (int, float) else "must be a number"
    if problem:
      raise deploy.DeployError("--%s=%s after --: it %s" % (option.name, value, problem))
