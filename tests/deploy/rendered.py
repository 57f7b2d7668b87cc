"""Jobs whose files the tests of this folder render: one of each kind, plain and with everything."""
from __future__ import annotations

import itertools

from tf1ps.deploy import TARGETS, Request, render

# Values that a file must keep whole: quotes, variables, specifiers, comments, a trailing backslash.
NASTY = ("--text=a \"b\" 'c' $HOME ${X} $(whoami) `id` $$ %i %% # : - {{name}} @ é \\", "--on")
IN_IMAGES = ("jobset", "job", "tfjob", "compose")


def request(target, everything=False, **values):
  """A job for this target; with everything it has all that can be asked for."""
  all_values = {"program": "tf1ps_examples.digits"}
  if target == "systemd":
    all_values.update(ps_hosts="a:2222,b:2222", worker_hosts="a:2223,b:2223,c:2222")
  else:
    all_values.update(num_ps=2, num_workers=3)
  if target in IN_IMAGES:
    all_values.update(image="registry.example:5000/team/digits:1.2")
  if everything:
    all_values.update(
      program="/programs/my digits.py", name="true", evaluator=True, cpus="2", memory="4Gi",
      checkpoint_dir="/check points/a$b%c", flags=NASTY)
    if target != "systemd":
      all_values.update(gpus=1)
    if target in IN_IMAGES:
      all_values.update(volume="checkpoints")
  all_values.update(values)
  return Request(target, **all_values)


def every_file():
  """Yields (target, whether it has everything, file) of all files."""
  for target, everything in itertools.product(TARGETS, (False, True)):
    for file in render(request(target, everything)):
      yield target, everything, file
