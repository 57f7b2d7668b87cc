"""The doctor's rules, and the findings of a rule in a program."""

from __future__ import annotations

from typing import Callable, NamedTuple

# The kinds of rules.
GONE = "gone"  # today's TensorFlow lacks something: the program fails
DIFFERS = "differs"  # the program runs, but silently does something else
TRAP = "trap"  # with several tasks, the program hangs, drifts or loses something


class Rule(NamedTuple):
  """A kind of problem that the doctor looks for."""

  name: str  # in words, such as "server-join-never-ends"
  kind: str  # GONE, DIFFERS or TRAP
  summary: str  # a sentence: what happens
  advice: str  # a sentence: what to do
  page: str  # the page that explains it: "docs/run.md#the-end"
  # Whether `import tf1ps.v1 as tf` and tf1ps-run fix the problem by themselves. If so, names that
  # come from tf1ps are no findings of the rule.
  is_fixed: bool
  # Takes a `SourceFile`, and yields a node for each finding, or the node and its message.
  find: Callable


class Finding(NamedTuple):
  """A place in a program to which a rule applies; findings sort by place."""

  path: str  # as the user gave it, without "./"
  line: int  # from 1
  column: int  # from 1
  rule: Rule
  message: str  # the rule's summary, or a sentence with this place's names
