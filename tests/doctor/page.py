"""Makes the tables of docs/doctor.md: `python -m tests.doctor.page` writes them again."""
from __future__ import annotations

import contextlib
import io
import pathlib
import re

from tests.doctor import rules_test, traps_test
from tf1ps import doctor

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "doctor.md"
_KINDS = ((doctor.GONE, "Gone"), (doctor.DIFFERS, "Different"), (doctor.TRAP, "Traps"))
SILENT, RENAMES, REPORTS = "nothing", "renames", "a message"


def rows(found):
  """Returns the lines of each kind's table.

  Args:
    found: {rule: what tf_upgrade_v2 says of its examples}.
  """
  tables = {}
  for kind, _ in _KINDS:
    tables[kind] = ["|rule|what happens|fixed|`tf_upgrade_v2` says|", "|-|-|-|-|"]
    tables[kind] += ["|[`%s`](%s)|%s|%s|%s|" % (
      rule.name, rule.page.replace("docs/", "", 1), rule.summary,
      "yes" if rule.is_fixed else "", found[rule.name])
      for rule in doctor.RULES if rule.kind == kind]
  return tables


def with_tables(text, tables):
  """Returns the page with these tables in the place of its own, under headings, and their count."""
  for kind, heading in _KINDS:
    head, found, rest = text.partition("\n## %s\n" % heading)
    before, _, table = rest.partition("|")
    after = re.sub(r"^.*\n(\|.*\n)*", "", table)
    text = head + found + before + "\n".join(tables[kind]) + "\n" + after
  traps = tables[doctor.TRAP][2:]
  silent = [line for line in traps if not line.endswith("|%s|" % REPORTS)]
  return re.sub(r"\d+ of the \d+ traps", "%d of the %d traps" % (len(silent), len(traps)), text)


def ask_tf_upgrade_v2():
  """Returns {rule: the most that tf_upgrade_v2 says} for the lines that show each rule."""
  found = {"python-2": [_say("import tensorflow as tf\nprint 'a'").get(2, SILENT)]}
  for rule, sources in rules_test.FOUND.items():  # the first one is the usual one
    source = sources[0].replace("tensorflow.compat.v1", "tensorflow")  # else it does nothing at all
    found[rule] = [_say(source).get(source.count("\n") + 1, SILENT)]
  for path in traps_test.TRAPS:
    text = path.read_text()
    said = _say(text)
    for line, rule in traps_test.marks(text):
      found.setdefault(rule, []).append(said.get(line, SILENT))
  return {rule: max(each, key=[SILENT, RENAMES, REPORTS].index) for rule, each in found.items()}


def _say(source):
  """Returns {line: RENAMES or REPORTS} for a source."""
  from tensorflow.tools.compatibility import ast_edits, tf_upgrade_v2

  out, said = io.StringIO(), {}
  with contextlib.redirect_stdout(io.StringIO()):
    _, _, errors = ast_edits.ASTCodeUpgrader(
      tf_upgrade_v2.TFAPIChangeSpec()).process_opened_file(
        "old.py", io.StringIO(source), "new.py", out)
  if not out.getvalue():  # it could not be parsed
    return {number: REPORTS for number in range(1, source.count("\n") + 2)}
  new = out.getvalue().split("\n")
  for number, line in enumerate(source.split("\n"), 1):
    if number <= len(new) and new[number - 1] != line:
      said[number] = RENAMES
  for error in errors:
    said[int(re.match(r"old\.py:(\d+)", error).group(1))] = REPORTS
  return said


if __name__ == "__main__":
  PAGE.write_text(with_tables(PAGE.read_text(), rows(ask_tf_upgrade_v2())))
