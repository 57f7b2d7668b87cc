from __future__ import annotations

import pytest

from tf1ps.cli import tune_search as search
from tf1ps.training import Options


def result(ratio, *names, learns=search.SAME, loss=1.0):
  candidate = search.Candidate(tuple("--%s=1" % name for name in names), tuple(names), learns)
  return search.Result(candidate, [100 * ratio, 90 * ratio, 120 * ratio], ratio, loss)


def names(options, cpus=2, tries_threads=True):
  return [one.name for one in search.single_candidates(options, tries_threads, cpus)]


ONE_THREAD = "--threads=1"
ANY = ["--wire_dtype=bfloat16", "--wire_dtype=float16"]


def test_the_options_of_an_asynchronous_job():
  assert names(Options(steps=1)) == [
    ONE_THREAD, "--steps_per_execution=4", "--steps_per_execution=8", *ANY, "--overlap=2"]
  assert names(Options(steps=1), cpus=16)[:2] == [ONE_THREAD, ONE_THREAD.replace("1", "4")]


@pytest.mark.parametrize("options, expected", [
  (dict(sync_replicas=True), [ONE_THREAD, *ANY]),
  (dict(replication="all_reduce"), [ONE_THREAD]),
  (dict(steps_per_execution=8, wire_dtype="bfloat16"), [
    ONE_THREAD, "--steps_per_execution=4", "--wire_dtype=float16", "--overlap=2"])])
def test_only_options_that_go_with_the_users_and_change_them(options, expected):
  assert names(Options(steps=1, **options)) == expected


def test_threads_that_the_user_gives():
  assert ONE_THREAD not in names(Options(steps=1), tries_threads=False)


def test_the_best_value_of_each_option_that_helps():
  found = search.best_of_each([
    result(1.0), result(1.2, "threads"), result(1.5, "steps"), result(1.8, "steps"),
    result(1.04, "pack"), result(0.7, "wire")])
  assert [one.ratio for one in found] == [1.8, 1.2]


def test_combinations_of_the_winners():
  winners = [result(1.8, "steps"), result(1.5, "flight", learns=search.STALER),
             result(1.2, "threads"), result(1.1, "wire", learns=search.ROUNDED)]
  made = search.combinations(winners)
  assert [one.kinds for one in made] == [
    ("steps", "flight"), ("steps", "flight", "threads"), ("steps", "flight", "threads", "wire"),
    ("steps", "threads"), ("steps", "threads", "wire")]
  assert made[2].learns == "rounded to 16 bits, staler" and made[3].learns == "same"
  assert made[0].name == "--steps=1 --flight=1"
  assert [one.kinds for one in search.combinations(winners[:3])] == [
    ("steps", "flight"), ("steps", "flight", "threads"), ("steps", "threads"),
    ("flight", "threads")]
  other = search.Result(search.Candidate(("--steps=2",), ("steps",)), [1.7], 1.7, 1.0)
  assert [one.name for one in search.combinations(winners[:2], winners[:2] + [other])] == [
    "--steps=1 --flight=1", "--steps=2 --flight=1"]
  assert search.combinations(winners[:1]) == search.combinations([]) == []


def test_the_flags_to_use():
  base, steps = result(1.0), result(1.8, "steps")
  staler = result(2.5, "steps", "flight", learns=search.STALER)
  assert search.best_flags([base, staler, steps]) == (steps, staler)
  # What gains nothing beyond noise is left out.
  assert search.best_flags([base, steps, result(1.82, "steps", "pack")]) == (steps, None)
  slight = result(1.83, "flight", learns=search.STALER)
  assert search.best_flags([base, steps, slight]) == (steps, None)
  assert search.best_flags([base, result(0.9, "wire")]) == (base, None)


def test_a_ratio_is_that_of_jobs_in_one_round():
  assert search.ratio_to([20.0, 200.0, 30.0], [10.0, 100.0, 10.0]) == 2.0


def test_the_table():
  text = search.table([result(1.0, loss=0.5), result(1.5, "steps", learns=search.STALER)], 800)
  assert text.splitlines() == [
    "ratio  steps/s (min to max)  gradients  loss  option",
    "1.50   150 (135 to 180)      staler     1     --steps=1",
    "1.00   100 (90 to 120)       same       0.5   your flags",
    "ratio: the median over the rounds of the steps of an option to those of your flags",
    "loss: the chief's mean training loss over its examples 400 to 800"]


def test_as_json():
  base, steps = result(1.0, loss=float("nan")), result(1.5, "steps")
  assert search.as_json([base, steps], 800, {"--flight=1": "late"}) == {
    "rows": [
      dict(flags=[], steps_per_second=[100, 90, 120], ratio=1.0, gradients="same", loss=None),
      dict(flags=["--steps=1"], steps_per_second=[150, 135, 180], ratio=1.5, gradients="same",
           loss=1.0)],
    "examples": 800, "lost": {"--flight=1": "late"}, "use": ["--steps=1"], "use_staler": None}
  assert search.as_json([], 0, {})["use"] is None
