"""What the doctor says: a rule, and a finding of a rule in a program."""

from __future__ import annotations

from typing import Callable, NamedTuple

# The kinds of rules.
GONE = "gone"  # today's TensorFlow lacks it: the program fails
DIFFERS = "differs"  # it runs, and does something else in silence
TRAP = "trap"  # it hangs, drifts or loses something as soon as there are several tasks


class Rule(NamedTuple):
  """Something that the doctor looks for."""

  name: str  # in words, such as "server-join-never-ends"
  kind: str  # GONE, DIFFERS or TRAP
  summary: str  # one sentence: what happens
  advice: str  # one sentence: what to do
  page: str  # the page that explains it: "docs/run.md#the-end"
  # Whether `import tf1ps.v1 as tf` and tf1ps-run mend it by themselves. Then the rule is quiet
  # where the name comes from tf1ps.
  is_mended: bool
  # Takes a `Program`, and yields a node for each finding, or the node and a message for it.
  find: Callable


class Finding(NamedTuple):
  """A place in a program to which a rule applies; findings sort by place."""

  path: str  # as the user gave it, without "./"
  line: int  # from 1
  column: int  # from 1
  rule: Rule
  message: str  # the rule's summary, or a sentence with this place's names
