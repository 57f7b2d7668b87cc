"""The allowed values of this package's options; importing it does not import TensorFlow."""

from __future__ import annotations

from typing import Tuple

FILES, RECORDS, SHARD_DYNAMIC, NONE = SHARDS = ("files", "records", "dynamic", "none")
FAIL_ON_BAD_RECORD, SKIP_BAD_RECORD = ON_BAD_RECORD = ("fail", "skip")
DEFAULT_MAX_BAD_RATIO = 0.01  # the part of the records that may be skipped


def parse_bad_record_policy(text: str) -> Tuple[str, float]:
  """Parses --on_bad_record to the policy and the ratio of records that may be skipped."""
  name, has_ratio, ratio = text.partition(":")
  if name not in ON_BAD_RECORD or has_ratio and name == FAIL_ON_BAD_RECORD:
    raise ValueError("must be fail, skip, or skip:R")
  try:
    value = float(ratio) if has_ratio else DEFAULT_MAX_BAD_RATIO
  except ValueError:
    value = -1.0
  if not 0.0 <= value <= 1.0:
    raise ValueError("must have a ratio from 0 to 1 after skip:")
  return name, value
