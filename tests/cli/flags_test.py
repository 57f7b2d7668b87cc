from __future__ import annotations

import re

import pytest
from absl import flags

from tests.cli import commands
from tf1ps.cli import flags as flags_lib
from tf1ps.training import options


@pytest.mark.parametrize("name, flag, text", [
    ("tf1ps-worker", "--steps=0", "0: must be above 0"),
    ("tf1ps-worker", "--steps=-4", "-4: must be above 0"),
    ("tf1ps-worker", "--steps=many", "many: must be a whole number"),
    ("tf1ps-worker", "--steps=1.5", "1.5: must be a whole number"),
    ("tf1ps-worker", "--epochs=-1", "-1: must be above 0"),
    ("tf1ps-worker", "--examples=0", "0: must be above 0"),
    ("tf1ps-worker", "--learning_rate=0", "0: must be above 0"),
    ("tf1ps-worker", "--learning_rate=nan", "nan: must be above 0"),
    ("tf1ps-worker", "--learning_rate=fast", "fast: must be a number, warmup:STEPS, "
     "a decay (exponential, cosine, linear, piecewise), or these in this order with commas between "
     "them, not 'fast'"),
    ("tf1ps-worker", "--learning_rate=0.1,", "0.1,: must be a number, warmup:STEPS, a decay "
     "(exponential, cosine, linear, piecewise), or these in this order with commas between them, "
     "not ''"),
    ("tf1ps-worker", "--stall_after=0:fail",
     "0:fail: must be seconds from 0 on, or seconds above 0 with :fail, such as 600:fail"),
    ("tf1ps-worker", "--threads=0",
     "0: must be auto, a number from 1 on, or two numbers such as 4:2"),
    ("tf1ps-local", "--restart=on_failure:0", "on_failure:0: must be never, on_failure, or "
     "on_failure:N with N restarts of at least 1"),
    ("tf1ps-worker", "--start_timeout=soon", "soon: must be a number"),
    ("tf1ps-worker", "--batch_size=0", "0: must be above 0"),
    ("tf1ps-worker", "--start_timeout=0", "0.0: must be above 0"),
    ("tf1ps-worker", "--heartbeat_timeout=0",
     "0: must be seconds above 0, or two such numbers as in 30:300"),
    ("tf1ps-worker", "--optimizer=adamm",
     'adamm: must be the name of an optimizer (did you mean "adam"?)'),
    ("tf1ps-worker", "--shard=file", "file: value should be one of <files|records|dynamic|none>"),
    ("tf1ps-worker", "--sync_replicas=perhaps",
     "perhaps: must be true, false, or from 2 on the gradients in an update"),
    ("tf1ps-local", "--steps=0", "0: must be above 0"),
    ("tf1ps-local", "--heartbeat_timeout=0",
     "0: must be seconds above 0, or two such numbers as in 30:300"),
    ("tf1ps-local", "--start_timeout=0", "0.0: must be above 0"),
    ("tf1ps-local", "--gpu_memory=0",
     "0: must be auto, none, grow, all, or a number above 0 and at most 1"),
    ("tf1ps-ps", "--gpu_memory=1.5",
     "1.5: must be auto, none, grow, all, or a number above 0 and at most 1"),
    ("tf1ps-worker", "--gpu_memory=nan",
     "nan: must be auto, none, grow, all, or a number above 0 and at most 1"),
    ("tf1ps-local", "--num_ps=two", "two: must be a whole number"),
    ("tf1ps-ps", "--heartbeat_timeout=0",
     "0: must be seconds above 0, or two such numbers as in 30:300"),
    ("tf1ps-ps", "--start_timeout=0", "0.0: must be above 0"),
    ("tf1ps-ps", "--task_index=first", "first: must be a whole number"),
    ("tf1ps-evaluator", "--heartbeat_timeout=30:0:1",
     "30:0:1: must be seconds above 0, or two such numbers as in 30:300"),
    ("tf1ps-evaluator", "--start_timeout=0", "0.0: must be above 0"),
    ("tf1ps-predict", "--batch_size=0", "0: must be above 0"),
    ("tf1ps-reset", "--verbosity=loud",
     "loud: must be one of debug, info, warning, error, fatal")])
def test_a_bad_value_is_refused_at_once(start, name, flag, text):
  said = "%s: flag %s=%s (see %s --help)" % (name, flag.partition("=")[0], text, name)
  program = [] if name in ("tf1ps-ps", "tf1ps-reset") else [commands.LINE]
  assert commands.run(start, name, flag, *program) == (1, [said])


@pytest.mark.parametrize("name, may_be_zero", [
    ("tf1ps-local", ["num_ps", "num_workers"]),
    ("tf1ps-ps", ["num_ps", "task_index"]),
    ("tf1ps-worker", ["num_ps", "task_index"]),
    ("tf1ps-evaluator", ["num_ps", "task_index"]), ("tf1ps-predict", []),
    ("tf1ps-reset", ["num_ps"])])
def test_which_numbers_may_be_zero(start, name, may_be_zero):
  assert commands.call(start, commands.show_zeros, name) == may_be_zero


def test_the_flags_of_a_program():
  assert commands.names_of("tf1ps-ps") == [
    "program", "num_ps", "evaluator", "ps_hosts", "worker_hosts", "job_name",
    "task_index", "cluster_resolver", "port", "container", "job_workers", "persistent",
    "tls_dir", "start_timeout", "heartbeat_timeout", "grace",
    "threads", "gpu_memory", "metrics_port", "verbosity", "log_format"]


def test_the_flags_that_all_tasks_of_a_job_share():
  names = {name: set(commands.names_of(name)) for name in commands.PROGRAMS}
  cluster = {"ps_hosts", "worker_hosts", "job_name", "task_index",
             "cluster_resolver", "port"}
  own = {"num_workers", "dry_run", "restart", "log_dir", "keep_best"}
  assert names["tf1ps-local"] - own == names["tf1ps-worker"] - cluster
  assert own.isdisjoint(names["tf1ps-worker"])
  assert names["tf1ps-task"] == names["tf1ps-worker"] | names["tf1ps-ps"] | names["tf1ps-evaluator"]
  assert set.intersection(*map(names.get, commands.OF_PROGRAMS)) == {
    "program", "verbosity", "log_format"}


def test_all_flags_can_be_written_into_a_file():
  values = flags.FlagValues()
  flags_lib.define("worker", values)
  values(["tf1ps-worker", "--steps=7", "--start_timeout=2.5", "--sync_replicas"])
  lines = values.flags_into_string().splitlines()
  assert {"--steps=7", "--start_timeout=2.5", "--sync_replicas"} <= set(lines)
  values.unparse_flags()
  values(["tf1ps-worker", "--sync_replicas=2"])
  assert "--sync_replicas=2" in values.flags_into_string().splitlines()


def test_the_page_of_flags_is_up_to_date():
  page = (commands.ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
  assert page == flags_lib.as_page(), "make it again: python -m tf1ps.cli.flags > docs/flags.md"


def test_the_programs_read_only_flags_that_they_have():
  for path in (commands.ROOT / "tf1ps" / "cli").glob("*.py"):
    read = set(re.findall(r"\bFLAGS\.([a-z_]+)\b(?!\()", path.read_text(encoding="utf-8")))
    assert read <= set(options.BY_NAME), path
