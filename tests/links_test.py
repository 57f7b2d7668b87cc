"""Every link in a document leads to a file of the repository, and to the heading that it names."""
from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(path for folder in (".", "docs", "examples", "examples/data")
                   for path in (ROOT / folder).glob("*.md"))


def text_of(path):
  """The text without blocks of code."""
  return re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"),
                flags=re.DOTALL | re.MULTILINE)


def anchors(path):
  """What a link may name after #: headings, as GitHub makes them."""
  return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
          for heading in re.findall(r"^#+ +(.*)$", text_of(path), re.MULTILINE)}


def wrong_links(path):
  wrong = []
  for link in re.findall(r"\]\(([^)\s]*)\)", re.sub(r"`[^`\n]*`", "", text_of(path))):
    name, _, anchor = link.partition("#")
    target = path.parent / name if name else path
    if "://" not in link and not (
        target.exists() and (not anchor or anchor in anchors(target))):
      wrong.append(link)
  return wrong


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
  assert not wrong_links(path)


def test_a_wrong_link_is_found(tmp_path):
  (tmp_path / "b.md").write_text("# One of `two`, three\n\n```\n# none\n```\n")
  (tmp_path / "a.md").write_text(
    "[x](b.md), [x](#none), [x](b.md#one-of-two-three)\n[x\ny](c.md), [`x`](b.md#none) `[x](y)`\n"
    "[x](https://example.com/d.md#e)\n```\n[x](z)\n```\n# None\n")
  assert wrong_links(tmp_path / "a.md") == ["c.md", "b.md#none"]
  assert len(DOCUMENTS) > 20
