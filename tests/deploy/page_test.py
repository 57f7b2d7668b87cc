"""docs/deploying.md: its commands write the files that it speaks of, and its first jobs train."""
from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from tests import docs_test, harness, program_tasks
from tf1ps.cli import deploy

# An editable install for Python 3.7 has no package tf1ps_examples, which the page uses.
pytestmark = pytest.mark.any_tensorflow
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/deploying.md"


@pytest.mark.parametrize("arguments", docs_test.of_program(PAGE, "tf1ps-deploy"),
                         ids=lambda arguments: arguments[1])
def test_each_render_command_writes_the_files_that_the_page_names(arguments, tmp_path, monkeypatch,
                                                                  capsys):
  monkeypatch.chdir(tmp_path)
  assert deploy.run(arguments) == 0, capsys.readouterr().err
  capsys.readouterr()
  target = arguments[1].partition("=")[2]
  written = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("deploy/*/*")}
  section = re.split("^## ", (ROOT / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)
  text, = [part for part in section if "--to=%s --program=" % target in part
           and not part.startswith("Files")]
  named = set(re.findall(r"deploy/\w+/[\w.-]+\.\w+", text))
  assert named <= written, written
  units = {"deploy/systemd/%s.service" % re.sub(r"@\d+", "@", unit)
           for unit in re.findall(r"^ *systemctl start (\S+)$", text, re.MULTILINE)}
  assert units <= written, written


@pytest.mark.slow
def test_one_machine(start, tmp_path):
  arguments, = docs_test.of_program(PAGE, "tf1ps-local")
  output = docs_test.launcher(start, arguments, tmp_path)
  assert docs_test.LEARNT.search(output), output


@pytest.mark.slow
def test_several_machines_by_hand(start, tmp_path):
  hosts = dict(zip(("a:2222", "b:2222", "c:2222"), harness.addresses(3)))
  tasks = []
  for arguments in docs_test.of_program(PAGE, "tf1ps-task"):
    text = " ".join(map(shlex.quote, arguments))
    for host, address in hosts.items():
      text = text.replace(host, address)
    tasks.append(start("tf1ps-task", program_tasks.run_program, "tf1ps-task", shlex.split(text),
                       tmp_path))
  assert len(tasks) == 3
  docs_test.end_well(tasks)
  assert any(docs_test.LEARNT.search(task.output) for task in tasks)
