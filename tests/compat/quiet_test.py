from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.compat import quiet

# A program as ours begin: nothing of TensorFlow's has been imported, or seen its variables.
PROGRAM = """
from tf1ps.compat import quiet
quiet.quiet_environment({verbosity!r})
with quiet.held_back({verbosity!r}):
  import tensorflow.compat.v1 as tf
  quiet.quiet_python({verbosity!r})
  tf.disable_v2_behavior()
  server = tf.train.Server({{"local": ["127.0.0.1:0"]}})
with tf.Session(server.target) as session:
  print(session.run(tf.get_variable("v", initializer=3).initialized_value()))
"""


# A legacy program, whose first line is the one import.
LEGACY = """
import tf1ps.v1 as tf
import os
tf.train.Server.create_local_server()
os.write(2, b"the program's own\\n")
print(tf.Session().run(tf.constant(3)))
"""


# It logs as legacy programs do: by tf.logging and by absl, under tf.app.run.
LOGS = """
import logging
import sys
import tf1ps.v1 as tf
from absl import logging as absl_logging

def main(unused_argv):
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.logging.info("by TensorFlow")
  tf.logging.warning("by TensorFlow")
  absl_logging.warning("by absl")
  logging.getLogger("mine").warning("by Python")
  absl_logging.get_absl_handler().use_absl_log_file("log", {verbosity!r})
  tf.logging.warning("into a file")
  print(3)

tf.app.run(main)
"""


def run_program(verbosity, program=PROGRAM, **env):
  unset = ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS")
  done = subprocess.run(
      [sys.executable, "-W", "ignore", "-c", program.format(verbosity=verbosity)],
      env=dict({name: value for name, value in os.environ.items() if name not in unset}, **env),
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
      timeout=2 * harness.LIMIT)
  assert done.stdout == "3\n", done.stderr
  return done.stderr


def test_a_line_of_a_legacy_program_is_shown_once_or_is_in_absls_file(tmp_path):
  lines = run_program(str(tmp_path), LOGS).splitlines()
  assert [line for line in lines if "by TensorFlow" in line] == [
    "INFO:tensorflow:by TensorFlow", "WARNING:tensorflow:by TensorFlow"]
  for name in "absl", "Python":
    assert len([line for line in lines if line.endswith("by " + name)]) == 1
  logs = [path.read_text() for path in tmp_path.iterdir() if not path.is_symlink()]
  assert any("into a file" in log for log in logs), logs


@pytest.fixture
def level():
  """Gives TensorFlow's log the level back that a test changes."""
  before = tf.logging.get_verbosity()
  yield
  tf.logging.set_verbosity(before)


@pytest.mark.parametrize("verbosity, variables", [
    ("debug", {"TF_CPP_MIN_LOG_LEVEL": "0"}),
    ("info", {"TF_CPP_MIN_LOG_LEVEL": "0"}),
    ("warning", {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}),
    ("error", {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}),
    ("fatal", {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}),
])
def test_the_variables_of_each_verbosity(verbosity, variables):
  environ = {}
  quiet.quiet_environment(verbosity, environ)
  assert environ == variables
  assert verbosity in quiet.VERBOSITIES


def test_what_the_user_has_set_stays():
  environ = {"TF_CPP_MIN_LOG_LEVEL": "1"}
  quiet.quiet_environment("warning", environ)
  assert environ == {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}


def test_the_environment_of_this_process_is_the_default(monkeypatch):
  monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")  # it is unset afterwards
  monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
  quiet.quiet_environment("fatal")
  assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"


def test_another_verbosity_is_refused():
  environ = {}
  with pytest.raises(ValueError, match="one of debug, info, warning, error, fatal, got 'loud'"):
    quiet.quiet_environment("loud", environ)
  assert environ == {}


@pytest.mark.parametrize("verbosity, python_level", [
    ("debug", logging.DEBUG), ("info", logging.INFO), ("warning", logging.ERROR),
    ("error", logging.ERROR), ("fatal", logging.FATAL)])
def test_the_level_of_tensorflows_python_log(level, verbosity, python_level):
  quiet.quiet_python(verbosity)
  assert tf.logging.get_verbosity() == python_level


def test_what_comes_out_meanwhile_is_held_back(capfd):
  with quiet.held_back():
    os.write(2, b"noise of C++\n")
  os.write(2, b"afterwards\n")
  assert capfd.readouterr().err == "afterwards\n"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_it_is_shown_when_the_block_fails(capfd, error):
  with pytest.raises(error):
    with quiet.held_back("error"):
      os.write(2, b"the reason\n")
      raise error
  os.write(2, b"afterwards\n")
  assert capfd.readouterr().err == "the reason\nafterwards\n"


@pytest.mark.parametrize("verbosity", ["debug", "info"])
def test_nothing_is_held_back_for_whoever_wants_to_see(capfd, verbosity):
  with quiet.held_back(verbosity):
    os.write(2, b"noise\n")
    assert capfd.readouterr().err == "noise\n"


def test_no_descriptor_is_left_open():
  before = len(os.listdir("/proc/self/fd"))
  for _ in range(10):
    with quiet.held_back():
      pass
  assert len(os.listdir("/proc/self/fd")) < before + 10  # other threads may open some


@pytest.mark.slow
def test_a_program_says_nothing_of_its_own():
  assert run_program("warning") == ""


@pytest.mark.slow
def test_a_program_says_everything_when_asked():
  assert "grpc_server_lib.cc" in run_program("info")  # the line that names the server's address


@pytest.mark.slow
def test_a_legacy_program_begins_without_lines_of_information():
  lines = run_program("", LEGACY).splitlines()
  assert "the program's own" in lines
  # On a machine without a GPU TensorFlow 2 says at the first session that it found none; and on a
  # busy one sometimes, as a warning, that it cleaned up after a step.
  assert [line for line in lines if "cuInit" not in line and "local_rendezvous" not in line] == [
    "the program's own"]


@pytest.mark.slow
def test_a_legacy_program_has_all_lines_where_the_environment_asks_for_them():
  assert "grpc_server_lib.cc" in run_program("", LEGACY, TF_CPP_MIN_LOG_LEVEL="0")


def test_without_a_temporary_directory_the_output_is_shown(capfd, monkeypatch):
  with monkeypatch.context() as patch:
    patch.setattr(quiet.tempfile, "tempdir", "/no/such/directory")
    with quiet.held_back():
      os.write(2, b"shown\n")
  assert capfd.readouterr().err == "shown\n"
