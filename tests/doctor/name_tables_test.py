"""The tables are those of the TensorFlow that is installed, and of tf1ps.v1."""
from __future__ import annotations

import functools
import importlib

import pytest
import tensorflow
import tensorflow.compat.v1 as tf

from tests.doctor import tables_tasks
from tf1ps import compat
from tf1ps.doctor import changed_rules, missing_rules, name_tables, names

IS_1 = tensorflow.__version__ < "2"
current = pytest.mark.skipif(IS_1, reason="TensorFlow 1.15 has what the tables say is gone")


def get(module, name):
  """Returns what a name of the tables is in a module, or None."""
  try:
    return functools.reduce(getattr, name.split(".")[1:], module)
  except AttributeError:
    return None


@current
def test_names_of_1_15_that_only_compat_v1_has():
  assert [name for name in name_tables.ONLY_V1 if get(tf, name) is None] == []
  assert [name for name in name_tables.ONLY_V1 if get(tensorflow, name) is not None] == []


@current
@pytest.mark.parametrize("namespace", ["tf", "tf.train", "tf.nn", "tf.losses", "tf.metrics"])
def test_the_table_is_whole(namespace):
  v1, v2 = get(tf, namespace), get(tensorflow, namespace)
  missing = {"%s.%s" % (namespace, name) for name in dir(v1)
             if not name.startswith("_") and not hasattr(v2, name)}
  # Those that TensorFlow 1.15 does not have.
  newer = {"tf.CXX_VERSION", "tf.executing_eagerly_outside_functions", "tf.mixed_precision"}
  assert missing - name_tables.ONLY_V1 <= newer


@current
def test_names_that_are_nowhere():
  for name in name_tables.NOWHERE | name_tables.PUT_BACK:
    assert get(tf, name) is None and get(tensorflow, name) is None, name
  assert not hasattr(tf, "contrib") and not hasattr(tf, "estimator")
  with pytest.raises(ImportError):
    importlib.import_module("tensorflow.examples.tutorials.mnist")


@pytest.mark.skipif(not IS_1, reason="the names are those of TensorFlow 1.15")
def test_all_are_names_of_1_15():
  for table in (name_tables.NOWHERE, name_tables.PUT_BACK, name_tables.ONLY_V1):
    assert [name for name in table if get(tensorflow, name) is None] == []
  for space, gone in name_tables.CONTRIB_GONE.items():
    assert [name for name in gone if get(tensorflow, "tf.contrib.%s.%s" % (space, name)) is None
            ] == [], space
  for space, known in tables_tasks.ESTIMATOR_OF_1_15.items():
    names_there = {name for name in dir(get(tensorflow, space)) if not name.startswith("_")}
    assert names_there == set(known.split()), space


def test_old_names_are_gone_and_those_of_today_are_there():
  for old, new in compat.RENAMED.items():
    assert get(tf, "tf." + old) is None, old
    assert get(tf, "tf." + new) is not None, new
  assert compat.OTHER_ARGUMENTS <= set(compat.RENAMED)


def test_another_spelling_is_the_same_thing():
  for spelling, name in names.SPELLINGS.items():
    assert get(tf, spelling) is get(tf, name), spelling


def test_flags_of_absl():
  modules = tf.app.flags.FLAGS.flags_by_module_dict()
  flags = [flag for module in ("absl.app", "absl.logging") for flag in modules.get(module, ())]
  assert set(changed_rules.ABSL_FLAGS) <= {name for flag in flags
                                           for name in (flag.name, flag.short_name)}


@current
def test_what_tf1ps_v1_has(start):
  task = start("names", tables_tasks.names)
  assert task.wait() == 0, task.output
  assert "the tables are right" in task.output
  estimator, = [rule for rule in missing_rules.RULES if rule.name == "estimator-is-gone"]
  assert ("tf1ps.v1 has estimator" in task.output) == estimator.is_fixed
