from __future__ import annotations

import pytest
import tensorflow.compat.v1 as stock

from tests.v1 import namespace_tasks

NEWER = pytest.mark.skipif(stock.__version__.startswith("1."), reason="it needs no other Keras")


@pytest.mark.parametrize("name", [
  "drop_ins", "the_rest_is_tensorflows", "every_way_to_import", "what_is_nowhere",
  "main_of_a_program"])
def test_a_program_sees(name, start_without_v1):
  task = start_without_v1(name, getattr(namespace_tasks, name))
  assert task.wait() == 0, task.output


@NEWER
def test_keras_3_was_chosen(start_without_v1):
  task = start_without_v1("chosen", namespace_tasks.keras_3_was_chosen, TF_USE_LEGACY_KERAS="0")
  assert task.wait() == 0, task.output


@NEWER
@pytest.mark.parametrize("name", ["keras_3_was_used", "without_the_extra"])
def test_layers_that_are_missing_say_why(name, start_without_v1):
  task = start_without_v1(name, getattr(namespace_tasks, name))
  assert task.wait() == 0, task.output
