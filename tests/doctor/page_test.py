from __future__ import annotations

import json
import pathlib
import re
import shlex

import pytest
import tensorflow

from tests.doctor import page
from tf1ps.cli import doctor as program


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library pasta
@pytest.mark.skipif(tensorflow.__version__ < "2", reason="tf_upgrade_v2 is that of TensorFlow 2")
def test_the_page_lists_the_rules_and_what_tf_upgrade_v2_says_of_them():
  text = page.PAGE.read_text()
  assert page.with_tables(text, page.rows(page.ask_tf_upgrade_v2())) == text, (
    "python -m tests.doctor.page writes the tables again")


def test_the_commands_of_the_page(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(str(tmp_path))
  (tmp_path / "trainers").mkdir()
  migrating = (page.ROOT / "docs" / "migrating.md").read_text()
  trainer, = re.findall(r"```python\n(.*?)```", migrating, re.DOTALL)[:1]
  for path in ("trainer.py", "trainers/trainer.py"):
    (tmp_path / path).write_text(trainer)
  text = page.PAGE.read_text()
  blocks, outputs = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE), {}
  for language, block in blocks:
    for line in block.splitlines() if not language else ():
      command, _, to_file = line.partition(" > ")
      outputs[line] = (program.run(shlex.split(command)[1:]), capsys.readouterr().out)
      if to_file:
        assert json.loads(outputs[line][1])["version"] == "2.1.0"
  shown, = [block for language, block in blocks if language == "text"]
  assert set(shown.splitlines()) - {"..."} <= set(outputs["tf1ps-doctor trainer.py"][1].split("\n"))
  assert [code for code, _ in outputs.values()] == [1, 1, 1, 0, 0, 0]
  assert "tf1ps.v1" in pathlib.Path("trainers/trainer.py").read_text()
