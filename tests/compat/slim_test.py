"""tests/v1/contrib_test.py and numbers_test.py fail without the rest of slim.py."""
from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import replace_names


def test_one_module_finds_another_class():
  module = types.SimpleNamespace(train=tf.train)
  replace_names(module, "train", {"Supervisor": 7})
  assert module.train.Supervisor == 7 != tf.train.Supervisor
  assert module.train.Saver is tf.train.Saver
  assert module.train.constant is tf.constant  # as one that has moved to its public name


def test_names_that_are_gone_are_noticed():
  module = types.SimpleNamespace(train=tf.train)
  with pytest.raises(AttributeError, match="Absent"):
    replace_names(module, "train", {"Absent": 7})
  with pytest.raises(AttributeError, match="learning"):
    replace_names(module, "learning", {})
