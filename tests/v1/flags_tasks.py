"""What tests of `tf1ps.v1.flags` run as processes: flags belong to a process."""
from __future__ import annotations

import sys

NAMES = ("log_dir", "v", "verbosity", "logtostderr", "alsologtostderr", "stderrthreshold",
         "showprefixforinfo")


def own_flags():
  import tf1ps.v1 as tf
  import tf1ps.v1.app.flags as of_app
  assert tf.app.flags is tf.flags is of_app
  flags = tf.app.flags.FLAGS
  assert all(flags.find_module_defining_flag(name) == "absl.logging" for name in NAMES)
  tf.app.flags.DEFINE_string("log_dir", "/tmp/logs", "Where logs go.")
  tf.app.flags.DEFINE_integer(flag_name="v", default_value=3, docstring="A number.")
  tf.flags.DEFINE_string("verbosity", "loud", help="How loud.")
  tf.app.flags.DEFINE_boolean("alsologtostderr", True, "A choice.")
  tf.app.flags.DEFINE_integer("steps", 10, "The steps.")
  assert {flags.find_module_defining_flag(name) for name in ("log_dir", "v", "steps")} == {__name__}
  sys.argv = ["train.py", "--log_dir=here", "--v=4", "--steps=7"]

  def main(argv):
    from absl import logging
    logging.error("said %d", 1)
    print(argv, flags.log_dir, flags.v, flags.verbosity, flags.alsologtostderr, flags.steps)

  tf.app.run(main)


def twice():
  import tf1ps.v1 as tf
  tf.flags.DEFINE_integer("log_dir", 1, "The first.")
  from tests.v1 import namespace_tasks  # another module
  try:
    exec("define('log_dir', '2', '')", {"define": tf.flags.DEFINE_string, **vars(namespace_tasks)})
  except tf.flags.DuplicateFlagError as error:
    print(type(error).__name__)
