"""The headings of docs/troubleshooting.md are texts that tf1ps really writes."""
from __future__ import annotations

import ast
import collections
import pathlib
import re

import pytest

pytestmark = pytest.mark.any_tensorflow

ROOT = pathlib.Path(__file__).resolve().parents[1]
OTHERS = {  # of TensorFlow, of protobuf, of a shell
  "The same RunGraph (Worker) request was received twice",
  "is not a valid float",
  "Descriptors cannot",
  "python3.7: command not found",
}


def literals(source):
  """Returns the texts in a Python source, each with its parts put together.

  Values in an f-string become %s. Texts that a plus sign joins count as one.
  """
  return [text for text in map(_text, ast.walk(ast.parse(source))) if text]


def _text(node):
  if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
    return _text(node.left) + _text(node.right)
  if isinstance(node, ast.JoinedStr):
    return "".join(_text(part) or "%s" for part in node.values)
  value = getattr(node, "value", getattr(node, "s", None))
  return value if isinstance(value, str) else ""


def messages():
  """Returns the messages that the page explains: headings that begin with one in backquotes."""
  page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
  return re.findall(r"^### `([^`]+)`", page, re.MULTILINE)


@pytest.mark.slow
def test_every_heading_is_a_text_of_the_code():
  texts = "\n".join(text for path in (ROOT / "tf1ps").rglob("*.py")
                    for text in literals(path.read_text(encoding="utf-8")))
  found = messages()
  assert [each for each in found if each not in texts and each not in OTHERS] == []
  assert len(found) >= 30
  assert [each for each, count in collections.Counter(found).items() if count > 1] == []


def test_the_parts_of_a_text_are_put_together():
  source = 'raise E("no %s "\n        "came" % x)\nf = "a " + ("b" "c")\ng = f"{x} is {y!r} here"\n'
  found = literals(source)
  assert "no %s came" in found and "a bc" in found and "%s is %s here" in found
