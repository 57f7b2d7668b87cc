"""What a process of its own shows: importing tf1ps.v1 changes TensorFlow's mode."""
from __future__ import annotations

import importlib

from tf1ps.doctor import name_tables


def names():
  """Compares the tables with tf1ps.v1."""
  import tf1ps.v1 as tf
  from tf1ps.v1 import contrib, renamed

  for namespace, known in name_tables.CONTRIB.items():
    module = getattr(tf.contrib, namespace)
    if known is not None:
      names = {name for name in dir(module) if not name.startswith("_")}
      assert names == set(known.split()), (namespace, names ^ set(known.split()))
  assert not set(dir(contrib)) - set(name_tables.CONTRIB) - set(dir(importlib))
  find = renamed.finder()
  for old in name_tables.RENAMED:
    if "." not in old:
      find(old)
  print("the tables are right")
  if hasattr(tf, "estimator"):
    print("tf1ps.v1 has estimator")


def run(text):
  """Runs a program."""
  exec(compile(text, "program.py", "exec"), {"__name__": "__main__"})
