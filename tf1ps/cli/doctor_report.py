"""Makes the report of tf1ps-doctor: text, JSON or SARIF."""

from __future__ import annotations

import collections
import json
import os
import urllib.parse
from typing import List

from tf1ps import doctor, version

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ONE_IMPORT = "`import tf1ps.v1 as tf`, or tf1ps-run, fixes"
_NAME = "tf1ps-doctor"
_MOST = 3  # lines for the findings of a rule
_LEVELS = {doctor.GONE: "error", doctor.DIFFERS: "warning", doctor.TRAP: "warning"}


def text(findings: List[doctor.Finding], files: int) -> str:
  """Returns the findings rule by rule, the advice and the page of each rule, and the count.

  The findings that the import of tf1ps.v1 does not fix come first. The first findings of a rule
  have a line each; a last line has the places of the rule's other findings.

  Args:
    findings: the findings of all files.
    files: the number of files that were read.

  Returns:
    The text, without the last newline; "" without findings.
  """
  if not findings:
    return ""
  groups = collections.OrderedDict()
  for finding in sorted(findings, key=lambda finding: finding.rule.is_fixed):
    groups.setdefault(finding.rule.name, []).append(finding)
  fixed = [group for group in groups.values() if group[0].rule.is_fixed]
  lines = [line for group in groups.values() if group not in fixed for line in _lines(group)]
  if lines and fixed:
    lines.append("\n%s these:" % _ONE_IMPORT)
  lines += [line for group in fixed for line in _lines(group)]
  lines.append("")
  lines += ["%s: %s See `%s`." % (name, group[0].rule.advice, _command(group[0].rule))
            for name, group in groups.items()]
  lines.append("%d finding%s in %d of %d file%s. %s" % (
    len(findings), "s" * (len(findings) > 1), len({finding.path for finding in findings}), files,
    "s" * (files > 1),
    "%s %s." % (_ONE_IMPORT, "all that %s found" % _NAME if len(fixed) == len(groups)
                else sum(map(len, fixed)) or "none of them")))
  return "\n".join(lines)


def _command(rule: doctor.Rule) -> str:
  """Returns the command that prints a rule's page: "tf1ps docs run#the-end"."""
  return "tf1ps docs " + rule.page.replace("docs/", "", 1).replace(".md", "", 1)


def _lines(group):
  shown = len(group) if len(group) <= _MOST else _MOST - 1
  rule = group[0].rule
  lines = ["%s:%d:%d: %s: %s [%s]" % (
    finding.path, finding.line, finding.column, rule.kind, finding.message, rule.name)
    for finding in group[:shown]]
  places = collections.OrderedDict()  # train.py:3,9; nets.py:4
  for finding in group[shown:]:
    places.setdefault(finding.path, []).append(str(finding.line))
  if places:
    lines.append("... %d more [%s]: %s" % (len(group) - shown, rule.name, "; ".join(
      "%s:%s" % (path, ",".join(numbers)) for path, numbers in places.items())))
  return lines


def as_json(findings: List[doctor.Finding], files: int) -> str:
  """Returns a JSON list with an object per finding."""
  del files
  return json.dumps([{
    "path": finding.path, "line": finding.line, "column": finding.column, "rule": finding.rule.name,
    "kind": finding.rule.kind, "message": finding.message, "advice": finding.rule.advice,
    "page": _command(finding.rule), "is_fixed_by_tf1ps": finding.rule.is_fixed,
  } for finding in findings], indent=1)


def sarif(findings: List[doctor.Finding], files: int) -> str:
  """Returns SARIF 2.1.0, as GitHub's code scanning reads it."""
  del files
  index = {rule.name: number for number, rule in enumerate(doctor.RULES)}
  driver = {
    "name": _NAME,
    "version": version.__version__,
    "rules": [{
      "id": rule.name,
      "shortDescription": {"text": rule.summary + "."},
      "help": {"text": "%s See `%s`." % (rule.advice, _command(rule))},
      "defaultConfiguration": {"level": _LEVELS[rule.kind]},
      "properties": {"tags": [rule.kind], "isFixedByTf1ps": rule.is_fixed},
    } for rule in doctor.RULES],
  }
  results = [{
    "ruleId": finding.rule.name,
    "ruleIndex": index[finding.rule.name],
    "level": _LEVELS[finding.rule.kind],
    "message": {"text": "%s. %s" % (finding.message, finding.rule.advice)},
    "locations": [{"physicalLocation": {
      "artifactLocation": {"uri": _uri(finding.path)},
      "region": {"startLine": finding.line, "startColumn": finding.column},
    }}],
  } for finding in findings]
  return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [
    {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]}, indent=1)


def _uri(path: str) -> str:
  """Returns a path as a URI; a relative path begins at the current folder."""
  quoted = urllib.parse.quote(path.replace(os.sep, "/"))
  return "file://" + quoted if os.path.isabs(path) else quoted


FORMATS = {"text": text, "json": as_json, "sarif": sarif}
