"""The allowed values of this room's options; importing it does not import TensorFlow."""

WIRE_DTYPES = ("float32", "bfloat16", "float16")
