"""The allowed values of this room's options; importing it does not import TensorFlow."""

FILES, RECORDS, SHARD_DYNAMIC, NONE = SHARDS = ("files", "records", "dynamic", "none")
FAIL_ON_BAD_RECORD, SKIP_BAD_RECORD = ON_BAD_RECORD = ("fail", "skip")
DEFAULT_MAX_BAD_RATIO = 0.01  # the part of the records that may be skipped
