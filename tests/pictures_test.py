"""The pictures of the documents are those that their texts make."""
from __future__ import annotations

import importlib.util
import pathlib
import xml.etree.ElementTree

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "pictures"
TEXTS = sorted(FOLDER.glob("*.txt"))


@pytest.fixture
def draw():
  pytest.importorskip("drawsvg")
  spec = importlib.util.spec_from_file_location("draw", str(FOLDER / "draw.py"))
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_picture_is_the_one_that_its_text_makes(draw, path):
  svg = path.with_suffix(".svg").read_text(encoding="utf-8")
  assert draw.draw(draw.parse(path.read_text(encoding="utf-8"))) == svg


@pytest.mark.any_tensorflow
def test_each_picture_has_its_text_and_stands_in_a_page():
  assert {path.stem for path in FOLDER.glob("*.svg")} == {path.stem for path in TEXTS}
  pages = "".join(path.read_text(encoding="utf-8") for path in FOLDER.parent.glob("*.md"))
  for path in TEXTS:
    title = path.read_text(encoding="utf-8").splitlines()[0]
    assert pages.count("![%s](pictures/%s.svg)" % (title, path.stem)) == 1


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_label_stays_inside_of_its_picture(path):
  svg = xml.etree.ElementTree.parse(str(path.with_suffix(".svg"))).getroot()
  width, height = float(svg.get("width")), float(svg.get("height"))
  texts = [node for node in svg.iter() if node.tag.endswith("}text")]
  assert texts
  for node in texts:
    half = len(node.text) * 7.6 / 2
    assert half <= float(node.get("x")) <= width - half and 0 < float(node.get("y")) < height


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("text", [
  "T\nworker 0: a", "T\ntasks: ps 0\nworker 0: a", "T\ntasks: ps 0\nps 0 a"])
def test_a_line_that_is_no_event_is_refused(draw, text):
  with pytest.raises(ValueError, match="got"):
    draw.parse(text)
