"""Starts the tasks of a job on this machine, watches them, and ends them."""
