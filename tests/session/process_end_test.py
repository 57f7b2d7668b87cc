from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from tests import harness
from tf1ps.session import process_end

PROGRAM = """
import sys
from tf1ps.session import process_end

class Session(process_end.Endable):
  def __init__(self, name, raised=None):
    self._name, self._raised = name, raised
    process_end.register(self)

  def end_with_process(self, error):
    print(self._name, type(error).__name__, flush=True)
    if self._raised is not None:
      raise self._raised

"""


def run(code):
  """Runs code in a process of its own; returns its exit code, its lines, its last error line."""
  ended = subprocess.run([sys.executable, "-c", PROGRAM + textwrap.dedent(code)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         timeout=2 * harness.LIMIT)
  errors = ended.stderr.decode().splitlines() or [""]
  return ended.returncode, ended.stdout.decode().splitlines(), errors[-1]


def test_what_is_open_ends_after_the_programs_code_the_last_first():
  assert run("Session('a'); Session('b'); print('done')") == (
    0, ["done", "b NoneType", "a NoneType"], "")


def test_an_error_of_the_program_arrives_and_its_exit_code_stays():
  assert run("Session('a'); raise ValueError('x')") == (1, ["a ValueError"], "ValueError: x")


def test_a_code_of_the_program_stays():
  assert run("Session('a'); sys.exit(3)")[:2] == (3, ["a NoneType"])


def test_a_failure_at_the_end_is_the_exit_code():
  assert run("Session('a', RuntimeError('the job failed')); print('done')") == (
    1, ["done", "a NoneType"], "RuntimeError: the job failed")


def test_a_signals_exit_code_is_the_processes():
  assert run("Session('a', SystemExit(143))")[:2] == (143, ["a NoneType"])


def test_a_caller_ends_them_once():
  assert run("""
    Session('a', RuntimeError('failed'))
    Session('b')
    try:
      process_end.end_open_sessions(SystemExit(0))
    except RuntimeError as error:
      print(error)
    process_end.end_open_sessions()
  """) == (0, ["b NoneType", "a NoneType", "failed"], "")


def test_what_is_forgotten_is_left_alone():
  assert run("process_end.forget(Session('a')); Session('b')")[:2] == (0, ["b NoneType"])


def test_an_exit_with_a_code_is_an_error_of_the_program():
  class Session(process_end.Endable):
    def end_with_process(self, error):
      errors.append(error)

  errors, error = [], SystemExit(2)
  process_end.register(Session())
  process_end.end_open_sessions(error)
  assert errors == [error]
  with pytest.raises(NotImplementedError):
    process_end.Endable().end_with_process(None)
