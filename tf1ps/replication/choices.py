"""The allowed values of this room's options; importing it does not import TensorFlow."""

# What the end of one replica's data means for synchronous updates.
STOP_ALL, PAD, SHRINK = ON_UNEVEN = ("stop_all", "pad", "shrink")
