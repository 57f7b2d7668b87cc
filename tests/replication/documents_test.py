"""The programs in the pages about replication run as they stand."""
from __future__ import annotations

import pathlib
import re

import pytest

from tests import harness
from tests.replication import nodes as nodes_lib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program(document, first_line, folder):
  """Writes the program that begins with this line, with free ports; returns its path."""
  text = (ROOT / "docs" / document).read_text(encoding="utf-8")
  block, = re.findall(r"^```python\n(# %s.*?)^```" % re.escape(first_line), text,
                      re.DOTALL | re.MULTILINE)
  ports = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", block)))
  free = dict(zip(ports, harness.addresses(len(ports))))
  block = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: free[found.group(1)], block)
  path = folder / first_line
  path.write_text(block)
  return path


@pytest.mark.slow
@pytest.mark.parametrize("document, name, roles, last", [
  ("replication.md", "in_graph.py", ["ps", "1", "2", "0"], {"0": ["w is 3.000 at step 50"]}),
  ("replication.md", "staleness.py", ["ps", "0", "1"], {"0": ["w is 3.00"], "1": ["w is 3.00"]}),
  ("replication.md", "mirrored.py", ["0", "1"], {
    role: ["0.0", "1.0", "1.5", "1.75", "1.875"] for role in "01"}),
])
def test_a_page_s_program(start, document, name, roles, last, tmp_path):
  path = program(document, name, tmp_path)
  tasks = {role: start(role, nodes_lib.run_page, str(path), role) for role in roles}
  for role, lines in last.items():
    assert tasks[role].wait() == 0, tasks[role].output
    assert harness.without_logs(tasks[role].lines)[-len(lines):] == lines
