from __future__ import annotations

import pathlib
import re

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import iterators
from tf1ps.pipeline.shard import Shard
from tf1ps.program import contract as program_lib

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def test_the_program_in_the_readme_is_short_and_learns():
  program = re.search("```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL).group(1)
  assert len(program.splitlines()) < 30
  names = {}
  exec(compile(program, "README.md", "exec"), names)
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
