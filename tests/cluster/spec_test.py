from __future__ import annotations

import pytest

from tf1ps.cluster import spec


def test_lists_and_texts_with_blanks_are_the_same():
  cluster = spec.from_flags(" a:1 , b:1", ["c:1", " d:1"], "", None, "worker", 1)
  assert cluster == spec.Cluster(
      {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}}, "worker", 1)
  assert cluster.source == "flags"


def test_chief_evaluator_and_the_old_name_of_chief():
  cluster = spec.from_flags("a:1", "b:1", "c:1", "d:1", "master", 0, "0")
  assert cluster.jobs == {"ps": {0: "a:1"}, "worker": {0: "b:1"}, "chief": {0: "c:1"}}
  assert cluster.evaluators == {0: "d:1"}
  assert cluster.job_workers == (0,)
  assert cluster.task == ("chief", 0, "c:1")


def test_an_evaluator_needs_no_address():
  cluster = spec.from_flags("a:1", "b:1", None, None, "evaluator", 0)
  assert cluster.task == ("evaluator", 0, "")


@pytest.mark.parametrize("hosts", ["a:1,", "a:1,,b:1", ["a:1", ""]])
def test_refuses_a_comma_too_many(hosts):
  with pytest.raises(spec.ClusterError, match="--ps_hosts: an address is empty"):
    spec.from_flags(hosts, "c:1", None, None, "ps", 0)


def test_refuses_what_the_check_refuses():
  with pytest.raises(spec.ClusterError, match='did you mean "worker"'):
    spec.from_flags("a:1", "b:1", None, None, "wroker", 0)


@pytest.mark.parametrize("text, indices", [
    (None, None), ("", None), ("0", (0,)), ("2-3", (2, 3)), ("0,2-4", (0, 2, 3, 4)),
    (" 4 - 5 , 1 ", (1, 4, 5)), ("1-2,2", (1, 2)), ([3, 1], (1, 3)), ((), ()),
])
def test_parse_job_workers(text, indices):
  assert spec.parse_job_workers(text) == indices


@pytest.mark.parametrize("text, part", [
    ("a", "a"), ("0,", ""), ("-1", "-1"), ("1:3", "1:3"), ("1, 0-999999999", " 0-999999999")])
def test_parse_job_workers_refuses(text, part):
  with pytest.raises(spec.ClusterError) as error:
    spec.parse_job_workers(text)
  assert str(error.value) == (
      f'--job_workers: "{part}" of "{text}" is neither an index nor a range: '
      'write "2-3" or "0,2-4"')


def test_parse_job_workers_refuses_a_range_that_goes_down():
  with pytest.raises(spec.ClusterError) as error:
    spec.parse_job_workers("3-2")
  assert str(error.value) == '--job_workers: the range "3-2" goes down: write "2-3"'
