"""Every example whose docstring shows a command prints what stands there."""
from __future__ import annotations

import importlib
import importlib.util
import re

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.examples import checking, docstrings, forked_shells
from tests.examples.__main__ import label

# With interpreters of their own, as a user starts them; also those that start anything but Python.
AS_A_USER = ("book/hello_server", "programs/ps_that_ends")
FAST = ("book/hello_server",)
# Each takes seconds of both cores, and shows nothing of TensorFlow's version. `make
# examples-legacy` runs them, too.
ONCE = (
  "book/gpu_memory", "book/less_bandwidth", "book/loader_and_trainer", "book/network_a_task",
  "book/stale_gradients", "coordinator", "ensemble_queues", "exercises/ensemble_of_three",
  "exercises/hyper_parameter_search", "exercises/three_schemes", "fashion_images",
  "notes/loss_curves", "notes/when_not_to_parallelise", "programs/barrier_of_queues",
  "programs/by_tf_config", "programs/local_or_distributed", "programs/mnist_replica",
  "programs/ps_that_ends")


def marks(example):
  """Most are slow tests: together they take minutes."""
  if label(example) in FAST:
    return []
  return [pytest.mark.slow] + [pytest.mark.any_tensorflow] * (label(example) in ONCE)


def free_ports(count):
  return [int(address.rpartition(":")[2]) for address in harness.addresses(count)]


@pytest.mark.slow
@pytest.mark.parametrize("example", [
  pytest.param(example, id=label(example), marks=marks(example)) for example in docstrings.find()])
def test_prints_what_it_says(example, forks, tmp_path):
  if example.only_on not in ("", checking.release(tf.version.VERSION)):
    pytest.skip("only on TensorFlow %s" % example.only_on)
  if label(example) in AS_A_USER or not forked_shells.can_run(example):
    problem = checking.check(example, choose_ports=free_ports).problem
  else:
    problem = forked_shells.check(example, forks, tmp_path, free_ports)
  assert not problem, problem


def test_those_with_a_name_here_are_there():
  assert set(FAST + AS_A_USER + ONCE) <= {label(example) for example in docstrings.find()}


@pytest.mark.any_tensorflow
def test_every_name_of_tf1ps_in_a_docstring_is_public():
  for path in sorted((docstrings.ROOT / "examples").glob("**/*.py")):
    for found in re.findall(r"\btf1ps\.(?:[a-z]+\.)?\w+", docstrings.read(path).docstring):
      room, _, name = found.rpartition(".")
      is_room = (docstrings.ROOT / found.replace(".", "/")).is_dir()
      assert is_room or name in importlib.import_module(room).__all__, "%s: %s" % (path, found)


def test_flags_are_those_of_absl():
  """As in the programs of TensorFlow 1, whose users read the examples."""
  for path in sorted((docstrings.ROOT / "examples").glob("**/*.py")):
    assert "argparse" not in path.read_text(encoding="utf-8"), path


def test_no_example_has_the_name_of_a_library():
  """An example's folder is the first place that its imports look into."""
  for path in sorted((docstrings.ROOT / "examples").glob("*/*.py")):
    assert importlib.util.find_spec(path.stem) is None, "%s would be imported in its place" % path
