from __future__ import annotations

import io
import pathlib
import xml.etree.ElementTree

import pytest

from tests.cli import commands
from tests.monitoring import picture, sample_status
from tf1ps.monitoring import status_text

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.any_tensorflow
def test_the_picture_is_that_of_the_sample():
  pytest.importorskip("rich")
  _, text = picture.draw()
  svg = xml.etree.ElementTree.parse(str(picture.PICTURE)).getroot()
  drawn = " ".join("".join(node.itertext()) for node in svg.iter() if node.tag.endswith("}text"))
  drawn = drawn.replace("\xa0", " ")
  job, = sample_status.make().jobs
  for row in [*status_text.task_rows(job), *status_text.ps_rows(job), *status_text.queue_rows(job)]:
    for cell in row:
      assert cell in text and cell in drawn
  assert "![tf1ps-top with a lost worker](screens/top.svg)" in (
    ROOT / "docs" / "monitoring.md").read_text()
  assert "http://" not in picture.PICTURE.read_text().replace("http://www.w3.org", "")


@pytest.mark.any_tensorflow
def test_a_narrow_terminal_cuts_no_number():
  console = pytest.importorskip("rich.console")
  from tf1ps.monitoring import top

  narrow = console.Console(width=80, file=io.StringIO())
  narrow.print(top.render(sample_status.make()))
  shown = narrow.file.getvalue()
  job, = sample_status.make().jobs
  for row in status_text.task_rows(job):
    line = [line for line in shown.splitlines() if line.startswith(row[0] + " ")][0]
    assert [cell for cell in row[2:7] + row[8:] if cell not in line] == []


def test_an_output_that_is_not_a_terminal_is_refused(start):
  assert commands.run(start, "tf1ps-top", "--ps_hosts=a:1") == (
    1, ["tf1ps-top: the output is not a terminal: call tf1ps-status, which prints lines, or give "
        "http://8080 to see a page at this port"])


@pytest.mark.parametrize("arguments, said", [
  (["http://8080", "http://9090"],
   "http://8080 and http://9090: one page shows the job: leave one out"),
  (["http://host"], "http://host must be a port from 1 to 65535, or HOST:PORT behind http://")])
def test_a_page_without_an_address_is_refused(start, arguments, said):
  assert commands.run(start, "tf1ps-top", "--ps_hosts=a:1", *arguments) == (
    1, ["tf1ps-top: " + said])


def test_the_page_shows_the_lines_of_the_sample():
  page = (ROOT / "docs" / "monitoring.md").read_text()
  for line in status_text.format_status(sample_status.make()).splitlines()[1:]:
    assert line in page
