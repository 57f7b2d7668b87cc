"""Disturbs a job at random, records a history, and checks it.

`python -m tools.chaos` runs 2 ps, 3 workers and 3 clients of a queue as processes. It kills and
stops them, cuts and slows their links, and fills their disk (plan.py, run.py). Each process appends
the events of its own to one file, the history (history.py). The validators read nothing but this
file (validators.py), so they can be run again on it.
"""
