"""The allowed values of this room's options; importing it does not import TensorFlow."""

FILES, RECORDS, DYNAMIC, NONE = SHARDS = ("files", "records", "dynamic", "none")
FAIL, SKIP = ON_BAD_RECORD = ("fail", "skip")
DEFAULT_RATIO = 0.01  # the part of the records that may be skipped
