"""Allowed and default values of this room's options. Importing it does not import TensorFlow."""

WIRE_DTYPES = ("float32", "bfloat16", "float16", "int8")
DEFAULT_PACK_BYTES = 1 << 16  # bytes; measured by `python -m benchmarks pack_bytes`
