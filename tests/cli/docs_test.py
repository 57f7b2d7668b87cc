from __future__ import annotations

import ast
import re

import pytest

from tests.cli import commands
from tf1ps.cli import docs

pytestmark = pytest.mark.any_tensorflow
_PAGE = re.compile(r"docs/\w+\.md(?:#[\w-]+)?|tf1ps docs [\w#-]*\w")


def messages():
  """The texts of tf1ps that name a page, but for docstrings, with their places."""
  root = commands.ROOT / "tf1ps"
  for path in sorted(root.rglob("*.py")):
    source = path.read_text(encoding="utf-8")
    if "docs" not in source:
      continue
    tree = ast.parse(source)
    documented = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(getattr(node, "body", None), list) and node.body
                  and isinstance(node.body[0], ast.Expr)}
    for node in ast.walk(tree):
      text = getattr(node, "s" if type(node).__name__ == "Str" else "value", None)  # Python 3.7
      if isinstance(text, str) and id(node) not in documented:
        for page in _PAGE.findall(text):
          yield "%s:%d" % (path.relative_to(root), node.lineno), page


def test_each_page_that_a_message_names_is_there(capsys):
  found = [(place, page) for place, page in messages() if not place.startswith("cli/flags.py")]
  assert len(found) > 50
  wrong = []
  for place, page in found:
    # doctor_report.py makes commands of these; no other message may name a file.
    assert place.startswith("doctor/") or not page.startswith("docs/"), place
    name = page.replace("docs/", "").replace(".md", "").replace("tf1ps docs ", "")
    if docs.run([name]):
      wrong.append("%s: %s" % (place, page))
  capsys.readouterr()
  assert not wrong


def test_the_pages(capsys):
  assert docs.run([]) == 0
  lines = capsys.readouterr().out.splitlines()
  assert [line.split()[0] for line in lines] == sorted(
    path.stem for path in (commands.ROOT / "docs").glob("*.md"))
  assert "flags              Flags" in lines
  assert docs.run(["flags"]) == 0
  text = (commands.ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
  assert capsys.readouterr().out == text


def test_a_section_has_its_own_sections_and_no_other(capsys, monkeypatch, tmp_path):
  monkeypatch.setattr(docs, "_FOLDER", str(tmp_path))
  (tmp_path / "a.md").write_text(
    "# All\n\n## One: `x`\n\n```\n# no heading\n```\n\n### Inner\n\ntext\n\n## Two\n\nend\n")
  assert docs.run(["a#one-x"]) == 0
  assert capsys.readouterr().out == (
    "## One: `x`\n\n```\n# no heading\n```\n\n### Inner\n\ntext\n")
  assert docs.run(["a#two"]) == 0
  assert capsys.readouterr().out == "## Two\n\nend\n"


@pytest.mark.parametrize("argv, text", [
  (["flag"], "the documentation has no page flag; did you mean flags?"),
  (["flags#nothing"], "the documentation has no section flags#nothing"),
  (["zzz"], "the documentation has no page zzz")])
def test_a_page_that_is_not_there(argv, text, capsys):
  assert docs.run(argv) == 1
  assert capsys.readouterr().err.startswith("tf1ps-docs: " + text)
