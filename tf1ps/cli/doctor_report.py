"""What tf1ps-doctor prints: text, JSON or SARIF."""

from __future__ import annotations

import collections
import json
import os
import urllib.parse
from typing import List

from tf1ps import doctor, version

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ONE_IMPORT = "`import tf1ps.v1 as tf`, or tf1ps-run, mends"
_LEVELS = {doctor.GONE: "error", doctor.DIFFERS: "warning", doctor.TRAP: "warning"}


def text(findings: List[doctor.Finding], files: int) -> str:
  """One line per finding; then for each rule its advice and its page; then the count.

  What the one import does not mend comes first, with its advice.

  Args:
    findings: what was found.
    files: how many files were read.

  Returns:
    The text, without the last end of line; "" where nothing was found.
  """
  if not findings:
    return ""
  findings = sorted(findings, key=lambda each: each.rule.is_mended)
  mended = sum(each.rule.is_mended for each in findings)
  lines = ["%s:%d:%d: %s: %s [%s]" % (
    each.path, each.line, each.column, each.rule.kind, each.message, each.rule.name)
    for each in findings]
  if 0 < mended < len(findings):
    lines.insert(len(findings) - mended, "\n%s these:" % _ONE_IMPORT)
  lines.append("")
  rules = collections.OrderedDict((each.rule.name, each.rule) for each in findings)
  lines += ["%s: %s %s" % (rule.name, rule.advice, rule.page) for rule in rules.values()]
  lines.append("%d finding%s in %d of %d file%s. %s" % (
    len(findings), "s" * (len(findings) > 1), len({each.path for each in findings}), files,
    "s" * (files > 1),
    "%s %s." % (
      _ONE_IMPORT, "all of them" if mended == len(findings) else mended or "none of them")))
  return "\n".join(lines)


def as_json(findings: List[doctor.Finding], files: int) -> str:
  """A list of objects, one per finding."""
  del files
  return json.dumps([{
    "path": each.path, "line": each.line, "column": each.column, "rule": each.rule.name,
    "kind": each.rule.kind, "message": each.message, "advice": each.rule.advice,
    "page": each.rule.page, "is_mended_by_tf1ps": each.rule.is_mended,
  } for each in findings], indent=1)


def sarif(findings: List[doctor.Finding], files: int) -> str:
  """SARIF 2.1.0, as code scanning of GitHub and others read it."""
  del files
  index = {rule.name: number for number, rule in enumerate(doctor.RULES)}
  driver = {
    "name": "tf1ps-doctor",
    "version": version.__version__,
    "rules": [{
      "id": rule.name,
      "shortDescription": {"text": rule.summary + "."},
      "help": {"text": "%s See %s of tf1ps." % (rule.advice, rule.page)},
      "defaultConfiguration": {"level": _LEVELS[rule.kind]},
      "properties": {"tags": [rule.kind], "isMendedByTf1ps": rule.is_mended},
    } for rule in doctor.RULES],
  }
  results = [{
    "ruleId": each.rule.name,
    "ruleIndex": index[each.rule.name],
    "level": _LEVELS[each.rule.kind],
    "message": {"text": "%s. %s" % (each.message, each.rule.advice)},
    "locations": [{"physicalLocation": {
      "artifactLocation": {"uri": _uri(each.path)},
      "region": {"startLine": each.line, "startColumn": each.column},
    }}],
  } for each in findings]
  return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [
    {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]}, indent=1)


def _uri(path: str) -> str:
  """Returns a path as a URI; a relative one is relative to the current folder."""
  quoted = urllib.parse.quote(path.replace(os.sep, "/"))
  return "file://" + quoted if os.path.isabs(path) else quoted


FORMATS = {"text": text, "json": as_json, "sarif": sarif}
