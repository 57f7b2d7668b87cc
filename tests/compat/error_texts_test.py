from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import error_texts


def test_the_text_of_a_real_error_begins_with_what_happened():
  with tf.Graph().as_default(), tf.Session() as session:
    value = tf.placeholder(tf.float32, [None])
    checked = tf.debugging.check_numerics(value, "not a number here")
    try:
      session.run(checked, {value: [float("nan")]})
    except tf.errors.InvalidArgumentError as error:
      assert error_texts.error_line(error).startswith("not a number here")
    else:
      raise AssertionError("no error")


def test_prefixes_are_passed_over():
  text = "Graph execution error:\n\nFrom /job:ps/replica:0/task:0:\nport closed\nmore"
  assert error_texts.error_line(RuntimeError(text)) == "port closed"


def test_a_list_of_errors_begins_with_the_first_one():
  text = ("Graph execution error:\n\n=====================\n"
          "INTERNAL: From /job:worker/replica:0/task:0:\nNo worker known\nmore")
  assert error_texts.error_line(RuntimeError(text)) == "No worker known"


def test_what_a_saver_says_first_is_passed_over(tmp_path):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("old", [])
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("new", [])
    with pytest.raises(tf.errors.NotFoundError) as caught:
      tf.train.Saver().restore(session, path)
  assert error_texts.error_line(caught.value) == "Key new not found in checkpoint"


def test_an_error_without_a_text_is_named_by_its_type():
  assert error_texts.error_line(KeyboardInterrupt()) == "KeyboardInterrupt"
  assert error_texts.error_line(ValueError("\n \n")) == "ValueError"


def assertion(text):
  return tf.raw_ops.Assert(condition=tf.random_uniform([]) > 2.0, data=[tf.constant(text)])


def test_errors_of_earlier_steps_are_no_cause():
  server = tf.train.Server.create_local_server()
  with tf.Graph().as_default(), tf.Session(server.target) as session:
    earlier, later = assertion("earlier"), assertion("later")
    for _ in range(100):  # TensorFlow 2 logs beside the step, and appends its last lines
      errors_of = []
      for one in (earlier, later):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
          session.run(one)
        errors_of.append(caught.value)
      if "earlier" in str(errors_of[1]):
        break
    assert "earlier" in str(errors_of[1]) or tf.__version__.startswith("1.")
    assert error_texts.failed_assertions(errors_of[1]) == ["later"]
    assert error_texts.error_line(errors_of[1]) == "assertion failed: [later]"
    run = session.make_callable(later)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
      run()
    assert error_texts.failed_nodes(caught.value) == [later.name]


def test_all_causes_of_a_run_are_found():
  config = tf.ConfigProto(device_count={"CPU": 2})
  with tf.Graph().as_default(), tf.Session(config=config) as session:
    failing = []
    for number in range(2):
      with tf.device("/cpu:%d" % number):
        failing.append(assertion("on %d" % number))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
      session.run(failing)
    found = error_texts.failed_assertions(caught.value)
    assert found and set(found) <= {"on 0", "on 1"}


@pytest.mark.parametrize("text", [
  "2 root error(s) found.\n  (0) Invalid argument: a\n\t [[{{node x}}]]\n"
  "  (1) INVALID_ARGUMENT: b\n\t [[{{node y}}]]\n0 successful operations.\n",
  "=====================\nInvalid argument: From /job:a/replica:0/task:0:\na\n\t [[{{node x}}]]\n"
  "Recent warning and error logs:\n  W0000 file.cc:1] Aborting: INVALID_ARGUMENT: c\n"
  "INVALID_ARGUMENT: From /job:b/replica:0/task:0:\nb\n\t [[{{node y}}]]\n=====================",
])
def test_a_list_of_errors(text):
  assert error_texts.error_causes(RuntimeError(text)) == ["a", "b"]
