from __future__ import annotations

import re

import pytest
import tensorflow.compat.v1 as stock

from tests.v1 import renamed_tasks


def said(task):
  """Returns {sentence: how often} of what the log says about the program."""
  found = re.findall(r"renamed_tasks\.py:\d+: (.*)", task.output)
  return {sentence: found.count(sentence) for sentence in found}


def test_old_names_work_and_say_once_what_they_are_called_today(start, tmp_path):
  task = start("names", renamed_tasks.names, str(tmp_path))
  assert task.wait() == 0, task.output
  sentences = said(task)
  assert set(sentences.values()) == {1}
  assert {"tf.mul is called tf.multiply today.", "tf.pack is called tf.stack today.",
          "tf.scalar_summary is called tf.summary.scalar today.",
          "tf.train.SummaryWriter is called tf.summary.FileWriter today.",
          "tf.nn.rnn is called tf.nn.static_rnn today."} <= set(sentences)
  assert list(tmp_path.glob("events*"))


def test_each_name_of_the_table_is_there(start):
  task = start("every name", renamed_tasks.every_name)
  assert task.wait() == 0, task.output


@pytest.mark.skipif(stock.__version__.startswith("1."), reason="it has them")
def test_lost_names_say_what_to_use(start):
  task = start("lost", renamed_tasks.lost_names)
  assert task.wait() == 0, task.output


def test_types_tell_the_order_of_arguments(start):
  task = start("orders", renamed_tasks.orders_by_types)
  assert task.wait() == 0, task.output
  assert said(task) == {sentence: 1 for sentence in (
    "tf.concat(dim, values) is tf.concat(values, axis) today.",
    "tf.split(dim, count, value) is tf.split(value, count, axis) today.",
    "tf.reverse takes dimensions today, not a truth value for each.",
    "tf.image.resize_images(images, height, width) is resize_images(images, [height, width]) "
    "today.")}


@pytest.mark.parametrize("is_asked", [False, True])
def test_losses_take_the_order_that_the_program_asks_for(is_asked, start):
  task = start("losses", renamed_tasks.losses, is_asked)
  assert task.wait() == 0, task.output
  assert ("tf.nn.nce_loss takes labels before inputs today." in said(task)) == is_asked
