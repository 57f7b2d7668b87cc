"""The last import of the process that tests' processes are forked from.

A test's process lives for a second and builds graphs, which are no garbage: to look for some after
every 700 objects, as Python does, takes a tenth of its time.
"""
import gc

gc.set_threshold(50000, 5, 5)
