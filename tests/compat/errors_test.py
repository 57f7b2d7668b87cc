from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import errors


def test_the_text_of_a_real_error_begins_with_what_happened():
  with tf.Graph().as_default(), tf.Session() as session:
    value = tf.placeholder(tf.float32, [None])
    checked = tf.debugging.check_numerics(value, "not a number here")
    try:
      session.run(checked, {value: [float("nan")]})
    except tf.errors.InvalidArgumentError as error:
      assert errors.error_line(error).startswith("not a number here")
    else:
      raise AssertionError("no error")


def test_prefixes_are_passed_over():
  text = "Graph execution error:\n\nFrom /job:ps/replica:0/task:0:\nport closed\nmore"
  assert errors.error_line(RuntimeError(text)) == "port closed"


def test_a_list_of_errors_begins_with_the_first_one():
  text = ("Graph execution error:\n\n=====================\n"
          "INTERNAL: From /job:worker/replica:0/task:0:\nNo worker known\nmore")
  assert errors.error_line(RuntimeError(text)) == "No worker known"


def test_what_a_saver_says_first_is_passed_over(tmp_path):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("old", [])
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("new", [])
    with pytest.raises(tf.errors.NotFoundError) as caught:
      tf.train.Saver().restore(session, path)
  assert errors.error_line(caught.value) == "Key new not found in checkpoint"


def test_an_error_without_a_text_is_named_by_its_type():
  assert errors.error_line(KeyboardInterrupt()) == "KeyboardInterrupt"
  assert errors.error_line(ValueError("\n \n")) == "ValueError"
