from __future__ import annotations

import pathlib
import re

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import iterators
from tf1ps.pipeline.shard import Shard
from tf1ps.program import contract as program_lib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def text_of(name):
  return (ROOT / name).read_text(encoding="utf-8")


def test_readme_is_read_in_a_minute_or_two():
  assert len(text_of("README.md").split()) < 700


def test_the_diff_in_readme_gives_the_imports_of_the_migration():
  diff = re.search("```diff\n(.*?)```", text_of("README.md"), re.DOTALL).group(1)
  old, new = [re.findall(r"^%s(.*)$" % re.escape(sign), diff, re.MULTILINE) for sign in "-+"]
  migrating = text_of("docs/migrating.md")
  assert "\n".join(old) in migrating
  assert "```python\n%s\n```" % "\n".join(new) in migrating


def test_each_page_is_on_exactly_one_path_of_the_index():
  text = text_of("docs/index.md")
  assert len(re.findall(r"^## ", text, re.MULTILINE)) == 4
  listed = re.findall(r"\]\((\w+)\.md\)", text)
  pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
  assert sorted(listed) == sorted(pages)


def test_the_first_program_is_short_and_learns():
  program = re.search("```python\n(.*?)```", text_of("docs/programs.md"), re.DOTALL).group(1)
  assert len(program.splitlines()) < 30
  names = {}
  exec(compile(program, "linear.py", "exec"), names)
  with tf.Graph().as_default():
    made = program_lib.Program("", None, names["input_fn"], names["model_fn"])
    batch = program_lib.build_input(made, "train", Shard(batch_size=50))
    spec = made.model_fn(*batch, "train")
    step = tf.train.AdamOptimizer(0.1).minimize(spec.loss)
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), tf.tables_initializer()])
      session.run(iterators.iterator_initializers(session.graph))
      for _ in range(300):
        _, loss = session.run([step, spec.loss])
  assert loss < 1e-3
