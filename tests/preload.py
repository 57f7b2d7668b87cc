"""The first import of the process that tests' processes are forked from.

With TensorFlow Keras imports matplotlib, where it is there: a seventh of the time. A test's process
lives for a second and builds graphs, which are no garbage: to look for some after every 700
objects, as Python does, takes a tenth of its time.
"""
import gc
import sys

sys.modules["matplotlib"] = None
import tensorflow.compat.v1  # noqa: E402, F401

del sys.modules["matplotlib"]
gc.set_threshold(50000, 5, 5)
