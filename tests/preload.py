"""The last import of the process that tests' processes are forked from.

What has been imported stays until the end. Python's collector would look at all of it in each
process, and each look writes, so that the memory would be copied for each: a third of the time that
a small cluster task takes.
"""
import gc

gc.collect()
gc.freeze()
