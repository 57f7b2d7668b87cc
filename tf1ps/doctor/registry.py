"""All rules, and their findings in a program."""

from __future__ import annotations

import ast
from typing import List

from tf1ps.doctor import (
  changed_rules,
  missing_rules,
  python_rules,
  server_rules,
  tpu_rules,
  traps,
)
from tf1ps.doctor.findings import Finding
from tf1ps.doctor.program import SourceFile

RULES = (missing_rules.RULES + tpu_rules.RULES + changed_rules.RULES + python_rules.RULES
         + server_rules.RULES + traps.RULES)


def find_all(program: SourceFile, rules=RULES) -> List[Finding]:
  """Returns the findings of the rules in a program, sorted by place."""
  findings = set()
  is_ours = any(full.split(".")[:2] == ["tf1ps", "v1"] for _, full in program.imports())
  for rule in rules:
    for reported in rule.find(program):
      node, message = (reported, rule.summary) if isinstance(reported, ast.AST) else reported
      origin = program.origin_of(node) or ("tf1ps.v1" if is_ours else "")
      if rule.is_fixed and origin.split(".")[0] == "tf1ps":
        continue
      line, column = program.place(node)
      if rule.name not in program.ignored_rules(line):
        findings.add(Finding(program.path, line, column, rule, message))
  return sorted(findings)
