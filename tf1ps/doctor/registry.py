"""All rules, and their findings in a program."""

from __future__ import annotations

import ast
from typing import List

from tf1ps.doctor import changed_rules, missing_rules, server_rules, tpu_rules, traps
from tf1ps.doctor.findings import Finding
from tf1ps.doctor.program import Program

RULES = (missing_rules.RULES + tpu_rules.RULES + changed_rules.RULES + server_rules.RULES
         + traps.RULES)


def find_all(program: Program, rules=RULES) -> List[Finding]:
  """Returns the findings of the rules in a program, sorted by place."""
  found = set()
  is_ours = any(full.split(".")[:2] == ["tf1ps", "v1"] for _, full in program.imports())
  for rule in rules:
    for each in rule.find(program):
      node, message = (each, rule.summary) if isinstance(each, ast.AST) else each
      origin = program.origin_of(node) or ("tf1ps.v1" if is_ours else "")
      if rule.is_mended and origin.split(".")[0] == "tf1ps":
        continue
      line, column = program.place(node)
      if rule.name not in program.ignored_rules(line):
        found.add(Finding(program.path, line, column, rule, message))
  return sorted(found, key=lambda each: (each.path, each.line, each.column, each.rule.name))
