from __future__ import annotations

import logging
import sys
import types

import pytest
import tensorflow.compat.v1 as tf

import tf1ps.pipeline
import tf1ps.replication
from tf1ps.cli import errors
from tf1ps.program import contract as program

USERS = """
import json
import helper

def fails(kind):
  return {"itself": raises, "by Python": reads, "by tf1ps": asks}[kind]()

def raises():
  raise ValueError("mine")

def reads():
  return json.loads("{")

def asks():
  from tf1ps.cluster import description
  return description.parse_address("no port", "here")

def makes():
  import tensorflow.compat.v1 as tf
  return tf.io.decode_csv("header", [[0.0]])

def input_fn(mode, shard): pass
def model_fn(features, labels, mode): pass

def reads_file():
  open("/no/such/file")

def opens(path):
  import tensorflow.compat.v1 as tf
  (open if path.startswith("py") else tf.io.gfile.GFile)(path.partition(":")[2]).read()
"""
HELPER = "def raises():\n  raise ValueError('the helper')\n"


@pytest.fixture
def users(tmp_path, monkeypatch):
  """A program whose helper is elsewhere."""
  monkeypatch.setattr(sys, "path", list(sys.path) + [str(tmp_path / "lib")])
  for file, text in ("lib/helper.py", HELPER), ("program/users_program.py", USERS):
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(text)
  yield program.load_program(str(tmp_path / "program" / "users_program.py"))
  for name in "users_program", "helper":
    del sys.modules[name]


def raised(function, *args):
  with pytest.raises(BaseException) as caught:
    function(*args)
  caught.value.__traceback__ = caught.value.__traceback__.tb_next  # without this file's frame
  return caught.value


@pytest.mark.parametrize("kind", ["itself", "by Python", "by tf1ps"])
def test_what_came_through_the_users_code_shows_its_place(users, kind, caplog, monkeypatch):
  error = raised(users.module.fails, kind)
  assert errors.came_through(error, users)
  assert not errors.came_through(error, None)
  monkeypatch.setattr(logging.getLogger("tf1ps"), "propagate", True)
  assert errors.show_traceback(error, users)
  text = caplog.records[-1].getMessage()
  assert 'File "%s", line 6, in fails' % users.module.__file__ in text
  assert text.splitlines()[0] == "Traceback (most recent call last):"
  assert text.splitlines()[-1].startswith("  (--verbosity=info shows ")
  assert errors.line(error) not in text  # the caller prints it below
  assert errors.line(error, users).startswith("users_program.py:")
  assert kind != "itself" or errors.line(error, users) == (
    "users_program.py:9 in raises: ValueError: mine")
  assert ("json/" in text or "description.py" in text) is False  # these frames are left out
  assert errors.show_traceback(error, users, always=True)
  text = caplog.records[-1].getMessage()
  assert ("json/" in text or "description.py" in text) is (kind != "itself")


def test_a_model_that_the_program_only_imported_is_the_users_as_well(users):
  assert errors.came_through(raised(users.module.helper.raises), users)


def test_an_installed_program_is_the_users_as_well(users, monkeypatch):
  folder = users.module.__file__.rpartition("/")[0]
  monkeypatch.setattr(errors, "is_installed_file", lambda path: path.startswith(folder))
  assert errors.came_through(raised(users.module.fails, "itself"), users)
  elsewhere = users._replace(module=types.SimpleNamespace(__file__="/elsewhere/p.py"))
  assert not errors.came_through(raised(users.module.fails, "itself"), elsewhere)


def test_tf1ps_own_errors_are_a_line(users):
  own = raised(program.load_program, "nowhere.py")
  for error in own, raised(open, "/no/such/file"):
    assert not errors.came_through(error, users)
    assert not errors.show_traceback(error, users)
    assert errors.show_traceback(error, users, always=True)


def test_the_unexpected_shows_its_place(users):
  def stops():
    sys.exit("no data")

  def fails():
    return {}["key"]

  assert errors.show_traceback(raised(fails), None)
  assert errors.show_traceback(raised(stops), None)
  assert not errors.show_traceback(errors.UsageError("wrong"), users, always=True)


def test_an_error_of_an_operation_names_the_line_that_made_it(users):
  with tf.Graph().as_default(), tf.Session() as session:
    made = users.module.makes()
    error = raised(session.run, made)
  assert not errors.came_through(error, users)
  assert errors.line(error, users).startswith(
    "users_program.py:20 in makes: InvalidArgumentError: Field 0 in record 0 is not a valid float")
  assert errors.line(error, users).endswith(
    ". If the file begins with a header, skip its line, as with header_lines=1")


def test_a_lost_replicas_error_gets_no_hint():
  text = "worker 1 failed: Field 0 in record 0 is not a valid float: a: 1 of 2 replicas remain"
  assert errors.line(tf1ps.replication.ReplicaLostError(text)) == "ReplicaLostError: " + text


def test_an_error_of_a_gpu_says_what_to_do(monkeypatch):
  monkeypatch.setenv("PATH", "")
  error = tf.errors.InternalError(None, None, (
    "2 root error(s) found.\n  (0) INTERNAL: Failure to initialize cublas may be due to OOM\n"
    "\t [[{{node x}}]]\n  (1) INTERNAL: another\n\t [[{{node y}}]]\n0 successful operations.\n"))
  assert errors.line(error) == (
    "InternalError: Failure to initialize cublas may be due to OOM. The GPU cannot start cuBLAS or "
    "cuDNN, mostly for lack of memory. Let processes share it (--gpu_memory=grow, or a part such "
    "as 0.4), or make batches smaller")


def test_a_hint_follows_one_full_stop(users):
  error = AttributeError("`layers.dense` is not available with Keras 3.")
  assert "Keras 3. Install tf_keras" in errors.line(error, users)


def test_the_import_of_tensorflow_2_is_hinted_at():
  error = AttributeError("module 'tensorflow' has no attribute 'get_variable'")
  assert errors.line(error).endswith("Does the program `import tensorflow.compat.v1 as tf`?")


def test_an_operation_of_ours_has_no_place_in_the_program(users, caplog, monkeypatch):
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf1ps.pipeline.next_batch(tf.data.Dataset.range(0))
    error = raised(session.run, batch)  # nothing has initialised the iterator
  assert errors.line(error, users).startswith("FailedPreconditionError: ")
  monkeypatch.setattr(logging.getLogger("tf1ps"), "propagate", True)
  assert errors.show_traceback(error, users)
  assert len(caplog.records[-1].getMessage().splitlines()) == 1


def test_an_error_as_a_line():
  assert errors.line(ValueError("one\ntwo")) == "ValueError: one"
  assert errors.line(KeyError("key")) == "KeyError: 'key'"
  assert errors.line(SystemExit("no data")) == "the program called sys.exit('no data')"
  assert errors.line(SystemExit(None)) == "the program called sys.exit(None)"


def test_which_exits_are_signals():
  codes = [143, 130, 129, 192, 128, 193, 0, 1, None, "143"]
  assert [errors.signal_of(SystemExit(code)) for code in codes] == [15, 2, 1, 64] + [None] * 6
  assert errors.signal_of(ValueError(143)) is None
  assert errors.signal_of(KeyboardInterrupt()) == 2


def of_tensorflow():
  raise tf.errors.UnavailableError(None, None, "the server is away")


def of_a_disk():
  raise OSError(28, "No space left on device")


@pytest.mark.parametrize("function, comes_again", [
  (of_tensorflow, False), (of_a_disk, False), (lambda: [][1], True), (lambda: int("x"), True)])
def test_an_error_from_a_value_comes_again_and_one_of_another_task_or_a_disk_may_not(
    function, comes_again):
  assert errors.comes_again(raised(function), None) == comes_again


def test_an_error_from_the_program_comes_again(users):
  assert errors.comes_again(raised(users.module.fails, "itself"), users)
  assert errors.comes_again(raised(users.module.reads_file), users)


@pytest.mark.parametrize("opener", ["py", "tf"])
def test_a_file_that_is_not_there_names_the_nearest(users, tmp_path, opener):
  (tmp_path / "train.csv").write_text("1")
  error = raised(users.module.opens, "%s:%s/trian.csv" % (opener, tmp_path))
  assert errors.line(error, users).endswith("; did you mean %s/train.csv?" % tmp_path)
  error = raised(users.module.opens, "%s:%s/other" % (opener, tmp_path))
  assert "did you mean" not in errors.line(error, users)
