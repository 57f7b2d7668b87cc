from __future__ import annotations

import re

import pytest

from tf1ps.training.options import (
  BY_NAME,
  OLD_FLAGS,
  PROGRAMS,
  TABLE,
  Options,
  check_options,
  parse_sync_replicas,
  shard_of,
  shared_by_workers,
)


def test_each_option_is_described_once():
  assert len(BY_NAME) == len(TABLE)
  assert all(set(option.programs) <= set(PROGRAMS) for option in TABLE)
  assert set(Options._fields) - {"config", "pack_bytes"} <= set(BY_NAME)
  for option in TABLE:
    has_field = option.name in Options._fields
    assert has_field or not option.rules and option.is_shared is None, option.name
    assert not has_field or option.default == getattr(Options(), option.name)
    # `check` takes the place of the limits.
    assert option.check is None or (option.above, option.at_least, option.values) == (
      None, None, ()), option.name


def test_old_flags_lead_to_flags_of_today():
  for old, advice in OLD_FLAGS.items():
    assert old not in BY_NAME
    assert set(re.findall(r"--(\w+)", advice)) <= set(BY_NAME), old
    assert re.match("(give|leave it out,|set|add|run) ", advice), old


def test_a_worker_has_a_flag_for_each_field():
  """Without one, a field of `Options` would have no value when a worker is started."""
  for name in set(Options._fields) - {"config", "pack_bytes"}:
    assert {"local", "worker"} <= set(BY_NAME[name].programs) or not BY_NAME[name].programs


@pytest.mark.parametrize("kwargs, expected", [
  ({}, ["--replication=between_graph", "--nosync_replicas"]),
  ({"sync_replicas": True, "wire_dtype": "float16"}, [
    "--replication=between_graph", "--sync_replicas", "--wire_dtype=float16",
    "TF1PS_PACK_BYTES=524288"]),
  ({"shard": "files", "partition_bytes": 9}, [
    "--replication=between_graph", "--nosync_replicas", "--partition_bytes=9"]),
  ({"shard": "dynamic"}, ["--replication=between_graph", "--nosync_replicas", "--shard=dynamic"])])
def test_what_all_workers_must_share(kwargs, expected):
  assert shared_by_workers(Options(steps=1, **kwargs)) == expected


@pytest.mark.parametrize("kwargs", [
  {"steps": 1}, {"epochs": 1}, {"examples": 1}, {"steps": 5, "epochs": 2, "examples": 9},
  {"steps": 1, "save_checkpoints": "steps:5,keep:2"},
  {"steps": 1, "staleness_policy": "max_lead:1,drop:0,damp,warm_up:9", "batch_size": [1, 2]}])
def test_options_that_work_together(kwargs):
  check_options(Options(**kwargs))


def test_something_must_say_when_the_job_ends():
  with pytest.raises(ValueError, match="the job has no end: give --steps, --epochs or --examples"):
    check_options(Options())


@pytest.mark.parametrize("name, value", [
  ("steps", 0), ("steps", -1), ("epochs", 0), ("examples", -5), ("batch_size", 0),
  ("learning_rate", 0.0), ("learning_rate", float("nan")), ("save_summary_steps", 0),
  ("start_timeout", 0.0), ("partition_bytes", 0)])
def test_a_number_that_is_not_above_zero_is_refused(name, value):
  with pytest.raises(ValueError, match="--%s must be above 0, got %r" % (name, value)):
    check_options(Options(**dict({"epochs": 1}, **{name: value})))


def test_another_word_is_refused():
  with pytest.raises(ValueError, match="--on_uneven must be one of .*, got 'ends'"):
    check_options(Options(steps=1, on_uneven="ends"))


def test_what_only_synchronous_updates_know_is_refused_without_them():
  with pytest.raises(ValueError, match="--on_uneven.* applies to .*: give --sync_replicas too"):
    check_options(Options(steps=1, on_uneven="pad"))
  check_options(Options(steps=1, on_uneven="pad", sync_replicas=True))


@pytest.mark.parametrize("replication", ["in_graph", "all_reduce"])
@pytest.mark.parametrize("name, value", [("sync_replicas", 2), ("on_uneven", "pad")])
def test_what_only_workers_with_graphs_of_their_own_know_is_refused(replication, name, value):
  with pytest.raises(ValueError, match="--%s=%s .*--replication=between_graph" % (name, value)):
    check_options(Options(**{**dict(steps=1, sync_replicas=True, replication=replication),
                             name: value}))


@pytest.mark.parametrize("given, aggregate, flag", [
  (True, None, "--sync_replicas"), (2, 2, "--sync_replicas=2"), ("3", 3, "--sync_replicas=3")])
def test_a_number_of_sync_replicas_is_the_gradients_of_an_update(given, aggregate, flag):
  options = Options(steps=1, sync_replicas=parse_sync_replicas(given))
  check_options(options)
  assert options.is_synchronous and options.replicas_to_aggregate == aggregate
  assert flag in shared_by_workers(options)


@pytest.mark.parametrize("value", [1, -1, 2.5, "yes"])
def test_a_number_that_may_mean_true_is_refused(value):
  with pytest.raises(ValueError, match="--sync_replicas must be true, false, or from 2 on .*, got"):
    check_options(Options(steps=1, sync_replicas=value))


@pytest.mark.parametrize("kwargs, text", [
  (dict(replication="in_graph"), "needs --replication=between_graph, the default"),
  (dict(replication="all_reduce"), "needs --replication=between_graph, the default"),
  (dict(sync_replicas=True), "give --on_uneven=shrink or pad")])
def test_unequal_shares_are_refused_where_workers_need_equal_ones(kwargs, text):
  with pytest.raises(ValueError, match=text):
    check_options(Options(steps=1, shard="dynamic", **kwargs))
  check_options(Options(steps=1, shard="dynamic"))
  check_options(Options(steps=1, shard="dynamic", sync_replicas=True, on_uneven="pad"))
  with pytest.raises(ValueError, match="--on_uneven=repeat needs .* with --shard=dynamic no"):
    check_options(Options(steps=1, shard="dynamic", sync_replicas=True, on_uneven="repeat"))


def test_replications_and_clones():
  check_options(Options(steps=1, replication="all_reduce"))
  check_options(Options(steps=1, replication="in_graph", sync_replicas=True, num_clones=2))
  with pytest.raises(ValueError, match="--num_clones=2 with .*in_graph needs --sync_replicas"):
    check_options(Options(steps=1, replication="in_graph", num_clones=2))
  with pytest.raises(ValueError, match="--replication must be one of between_graph, in_graph"):
    check_options(Options(steps=1, replication="ingraph"))
  with pytest.raises(ValueError, match="--num_clones must be above 0, got 0"):
    check_options(Options(steps=1, num_clones=0))


@pytest.mark.parametrize("name, value", [
  ("staleness_policy", "max_lead:2"), ("staleness_policy", "drop:0"), ("staleness_policy", "damp"),
  ("staleness_policy", "warm_up:5"), ("batch_size", [4, 4])])
def test_what_only_asynchronous_workers_know_is_refused_without_them(name, value):
  for kwargs in (dict(sync_replicas=True), dict(replication="all_reduce"),
                 dict(replication="in_graph")):
    with pytest.raises(ValueError, match="--%s.* applies to asynchronous updates: it needs "
                                         "--replication=between_graph, the default, and no" % name):
      check_options(Options(steps=1, **{name: value}, **kwargs))


@pytest.mark.parametrize("kwargs, text", [
  (dict(staleness_policy="drop:-1"), "--staleness_policy must have a number of at least 0 after "
                                     "drop:, got 'drop:-1'"),
  (dict(staleness_policy="max_lead:0"), "must have a number of at least 1 after max_lead:"),
  (dict(staleness_policy="damp,warm_up:0"), "must have a number of at least 1 after warm_up:"),
  (dict(staleness_policy="damp:2"), "must be none, or some of max_lead:N, drop:N, damp and"),
  (dict(staleness_policy="drop"), "must be none, or some of max_lead:N"),
  (dict(trace_steps="5"), "--trace_steps must be two numbers such as 100:105, for the steps"),
  (dict(trace_steps="5:5"), "--trace_steps must have 1 to 100 steps: the second number is the"),
  (dict(trace_steps="5:106"), "--trace_steps must have 1 to 100 steps"),
  (dict(trace_steps="5:6"), "--trace_steps=5:6 needs --checkpoint_dir, the directory of the trace"),
  (dict(staleness_policy=""), "must be none, or some of max_lead:N"),
  (dict(save_checkpoints="600"), "--save_checkpoints must be secs:X or steps:N, and may have keep"),
  (dict(save_checkpoints="secs:-1"), "must have a number above 0 after secs:"),
  (dict(save_checkpoints="steps:0"), "must have a number above 0 after steps:"),
  (dict(save_checkpoints="keep:many"), "must have a number above 0 after keep:"),
  (dict(save_checkpoints="secs:5,steps:5"), "must have secs:X or steps:N, not both"),
  (dict(on_bad_record="ignore"), "--on_bad_record must be fail, skip, or skip:R, got 'ignore'"),
  (dict(on_bad_record="fail:0.5"), "--on_bad_record must be fail, skip, or skip:R"),
  (dict(on_bad_record="skip:1.5"), "--on_bad_record must have a ratio from 0 to 1 after skip:"),
  (dict(checkpoint_dir=""), "--checkpoint_dir is empty: give a directory, or leave the option out"),
  (dict(checkpoint_dir="runs/a[1]*"), r"--checkpoint_dir must not contain \* \[ \]: TensorFlow"),
  (dict(batch_size=[4, 0]), "--batch_size must be above 0, got .4, 0.$"),
  (dict(batch_size=[]), "--batch_size must be above 0, got ..$")])
def test_numbers_that_make_no_sense_are_refused(kwargs, text):
  with pytest.raises(ValueError, match=text):
    check_options(Options(steps=1, **kwargs))


@pytest.mark.parametrize("text, parts", [
  ("secs:7", (7.0, None, 5)), ("steps:8", (None, 8, 5)), ("keep:3", (600.0, None, 3)),
  ("keep:3, steps:8", (None, 8, 3))])
def test_when_checkpoints_are_saved(text, parts):
  assert Options(save_checkpoints=text).saves == parts


def test_each_worker_has_its_batch_size():
  for given, sizes in (8, [8, 8]), ([8, 4], [8, 4]):
    shards = [shard_of(Options(batch_size=given), i, 2) for i in range(2)]
    assert [shard.batch_size for shard in shards] == sizes
    assert len({shard.block_size for shard in shards}) == 1
  with pytest.raises(ValueError, match="--batch_size=8,4 has 2 numbers, but the job has 3 workers"):
    shard_of(Options(batch_size=[8, 4]), 0, 3)


@pytest.mark.parametrize("name", ["steps_per_execution", "overlap",
                                  "gradient_accumulation_steps"])
def test_steps_of_another_shape_are_refused_where_they_cannot_be(name):
  wrong = {"steps_per_execution": "must be auto, or a number of steps from 1 on",
           "overlap": "must be none, prefetch, or a number of steps from 2 on"}.get(
             name, "must be above 0")
  with pytest.raises(ValueError, match="--%s %s, got 0" % (name, wrong)):
    check_options(Options(steps=1, **{name: 0}))
  check_options(Options(steps=1, staleness_policy="drop:2,warm_up:3", **{name: 2}))
  others = [dict(replication="in_graph"), dict(replication="all_reduce")]
  if name != "gradient_accumulation_steps":
    others += [dict(sync_replicas=True), dict(staleness_policy="max_lead:3")]
  if name == "overlap":
    others += [dict(shard="dynamic"), dict(gradient_accumulation_steps=2)]
  for other in others:
    with pytest.raises(ValueError, match="--(%s|gradient_accumulation_steps)=2 " % name):
      check_options(Options(steps=1, **dict({name: 2}, **other)))


def test_steps_of_another_shape_together():
  check_options(Options(steps=1, steps_per_execution=1, sync_replicas=True))
  for wrong in (True, "many", "-2", 1.5):
    with pytest.raises(ValueError, match="--steps_per_execution must be auto, or a number"):
      check_options(Options(steps=1, steps_per_execution=wrong))
  check_options(Options(steps=1, steps_per_execution=4, overlap=2))
  check_options(Options(steps=1, steps_per_execution=4, gradient_accumulation_steps=2,
                        shard="dynamic"))
  check_options(Options(steps=1, sync_replicas=True, gradient_accumulation_steps=2))
