from __future__ import annotations

import logging

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import bad_records


@pytest.mark.parametrize("arguments, text", [
  (("drop",), "on_bad_record must be one of fail, skip, got 'drop'"),
  (("skip", 1.5), "0.0 to 1.0, got 1.5")])
def test_what_is_no_policy_is_refused(arguments, text):
  with pytest.raises(ValueError, match=text):
    bad_records.BadRecords(*arguments)


def test_the_first_ten_are_logged_and_all_are_counted(caplog):
  policy = bad_records.BadRecords("skip", 0.5)
  with caplog.at_level(logging.WARNING, "tf1ps"):
    for line in range(15):
      policy.skip("a.csv:%d" % line, "no float", 100 + line)
  assert policy.skipped == 15
  assert [record.getMessage() for record in caplog.records] == [
    "skipped the bad record a.csv:%d: no float" % line for line in range(9)] + [
    "skipped the bad record a.csv:9: no float; further bad records are only counted"]


def test_above_the_ratio_the_job_stops():
  policy = bad_records.BadRecords("skip", 0.02)
  policy.skip("a.csv:1", "no float", 1)  # of 100 at least
  policy.skip("a.csv:2", "no float", 2)
  with pytest.raises(bad_records.TooManyBadRecordsError,
                     match=r"3 of 100 records are bad, .* of 0.02 \(--on_bad_record=skip:R\); "
                           r".*a.csv:3"):
    policy.skip("a.csv:3", "no float", 3)
  assert policy.skipped == 3


def test_at_the_end_few_records_are_enough():
  policy = bad_records.BadRecords("skip", 0.02)
  policy.check_at_end(0)
  policy.skip("a.csv:1", "no float", 1)
  policy.check_at_end(50)
  with pytest.raises(bad_records.TooManyBadRecordsError, match="1 of 49 records are bad"):
    policy.check_at_end(49)


def test_the_error_says_where():
  error = bad_records.located(
    tf.errors.InvalidArgumentError(None, None, "Field 3 is no float"), "a.csv:17")
  assert isinstance(error, tf.errors.InvalidArgumentError)
  assert error.message == "a.csv:17: Field 3 is no float"
