"""What runs the commands of the docstrings, on scripts that import nothing large."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

import pytest

from tests import harness
from tests.examples import checking, docstrings

SIX = "import sys\nprint(*sys.argv[1:])\n"


def check(folder, docstring, body=SIX, limit=1000.0):
  """Writes examples/one.py with this docstring, and runs it; returns the Result."""
  path = folder / "examples" / "one.py"
  path.parent.mkdir(exist_ok=True)
  path.write_text('"""One.\n\n%s\n"""\n%s' % (docstring, body))
  return checking.check(docstrings.read(path), limit, folder)


def is_running(process):
  """Says so of a process id; one that only waits for its parent to ask about it does not run."""
  try:
    with open("/proc/%s/stat" % process) as text:
      return text.read().rpartition(")")[2].split()[0] not in "ZX"
  except OSError:
    return False


@pytest.mark.parametrize("docstring", [
  "    $ python examples/one.py a b\n    a b\n\nText.",
  "    $ python examples/one.py a b\n    ... b",
  "    $ python examples/one.py a b\n    ...",
  "    $ python examples/one.py a b\n    ...\n    a b\n    ...",
  "    $ python examples/one.py a \\\\\n        b; echo c\n    a b\n    c",
  "    $ python examples/one.py a\n    a\n    $ python examples/one.py b\n    b",
  "    $ python examples/one.py; printf 'a\\\\n\\\\n  b\\\\n'\n\n    a\n\n      b\n",
])
def test_a_match(docstring, tmp_path):
  result = check(tmp_path, docstring)
  assert not result.problem and not result.skipped
  assert check(tmp_path, docstring + "\n    $ false").problem  # so it was run


def test_a_mismatch_shows_what_differs(tmp_path):
  result = check(tmp_path, "    $ python examples/one.py; printf '1\\\\n3\\\\n5 s\\\\n'\n\n"
                 "    1\n    2\n    ... s")
  assert result.problem.splitlines()[1:] == ["  ", "    1", "  - 2", "  + 3", "    ... s"]


def test_lines_that_are_missing_or_too_many(tmp_path):
  assert "  + b" in check(tmp_path, "    $ echo a; echo b\n    a").problem
  assert "  - b" in check(tmp_path, "    $ echo a\n    a\n    b").problem
  assert check(tmp_path, "    $ echo a; echo b\n    ab").problem


def test_an_exit_code_and_the_errors(tmp_path):
  problem = check(tmp_path, "    $ echo a; echo oh >&2; exit 3\n    a").problem
  assert "exit code 3" in problem and "    oh" in problem and "- a" not in problem
  # Of several commands in a shell, each counts, and the later ones are not run.
  problem = check(tmp_path, "    1$ false\n    1$ touch later").problem
  assert "exit code 1" in problem and not (tmp_path / "later").exists()


def test_blocks_run_one_after_the_other_until_one_fails(tmp_path):
  assert not check(tmp_path, "    $ echo 1 > file\n\nText.\n\n    $ cat file\n    1").problem
  assert check(tmp_path, "    $ cat none\n\nText.\n\n    $ touch later").problem
  assert not (tmp_path / "later").exists()


def test_numbered_shells_start_together(tmp_path):
  """Each waits for what the other one writes."""
  wait = "    %d$ until test -e %s; do :; done; echo %d; touch %s\n    %d"
  assert not check(tmp_path, "    1$ touch a\n" + wait % (1, "b", 1, "c", 1) + "\n\n"
                   + wait % (2, "a", 2, "b", 2)).problem
  # After a text, those before have ended.
  assert not check(tmp_path, "    1$ touch d\n\nThen:\n\n    1$ cat d\n    2$ cat d").problem


def test_a_failure_ends_the_other_shells(tmp_path, monkeypatch):
  monkeypatch.setattr(checking, "GRACE", 0.5)
  result = check(tmp_path, "    1$ echo a; sleep 1000\n    a\n    2$ exit 1")
  assert "1$ echo a; sleep 1000\n  had not ended" in result.problem
  assert "2$ exit 1\n  exit code 1" in result.problem


def test_ports_and_folders_are_replaced_everywhere_alike(tmp_path):
  docstring = ("    $ python examples/one.py 127.0.0.1:2222,127.0.0.1:2223 grpc://127.0.0.1:2222"
               " 127.0.0.1:0 > /tmp/kept; cat /tmp/kept\n"
               "    127.0.0.1:2222,127.0.0.1:2223 grpc://127.0.0.1:2222 127.0.0.1:0\n\nText.\n\n"
               "    $ python examples/one.py 127.0.0.1:2222 /tmp/kept/a | tee said\n"
               "    127.0.0.1:2222 /tmp/kept/a\n    $ echo 127.0.0.1:0 > zero")
  result = check(tmp_path, docstring)
  assert not result.problem
  assert (tmp_path / "zero").read_text() == "127.0.0.1:0\n"  # that is free already
  address, path = (tmp_path / "said").read_text().split()
  assert address.startswith("127.0.0.1:") and address not in ("127.0.0.1:2222", "127.0.0.1:2223")
  assert path.endswith("/kept/a") and not path.startswith("/tmp/kept")
  assert not os.path.exists(os.path.dirname(path))


class Clock:
  """Stands in for the module `time`: once a file has been written, a long time has passed."""

  def __init__(self, path):
    self._path = path

  def monotonic(self):
    is_written = self._path.exists() and self._path.read_text().endswith(".")
    return time.monotonic() + (5000.0 if is_written else 0.0)


def test_one_that_hangs_is_ended_at_its_limit(tmp_path, monkeypatch):
  monkeypatch.setattr(checking, "time", Clock(tmp_path / "ids"))
  body = ("import os, subprocess, sys\nprint('begun')\n"
          "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
          "open('ids', 'w').write('%d %d .' % (os.getpid(), child.pid))\nchild.wait()")
  problem = check(tmp_path, "    $ python examples/one.py\n    begun", body).problem
  assert "had not ended" in problem and "- begun" not in problem
  ids = (tmp_path / "ids").read_text().split()[:2]
  harness.wait_until(lambda: not any(is_running(process) for process in ids))


def test_a_process_left_behind_is_ended_and_told(tmp_path, monkeypatch):
  assert not check(tmp_path, "    $ sleep 0.1 & echo a\n    a").problem
  monkeypatch.setattr(checking, "GONE", 0.5)
  assert check(tmp_path, "    $ sleep 1000 >/dev/null & echo a\n    a").problem == (
    "left running: sleep 1000")


def test_children_have_this_python_the_programs_and_no_stale_state(tmp_path, monkeypatch):
  (tmp_path / "bin").mkdir()
  (tmp_path / "bin" / "tf1ps.py").write_text("import sys; print(*sys.argv[1:])")
  for name in checking.STALE:
    monkeypatch.setenv(name, "1")
  result = check(tmp_path, "    $ tf1ps-ps --task_index=0 'a  b'\n    ps --task_index=0 a  b\n"
                 "    $ python examples/one.py\n    True []",
                 "import os, sys\nprint(sys.executable == %r, "
                 "[name for name in %r if name in os.environ])" % (sys.executable, checking.STALE))
  assert not result.problem


@pytest.mark.parametrize("version", ["1.15", "2.x"])
def test_one_that_is_only_for_one_tensorflow(version, tmp_path, monkeypatch):
  monkeypatch.setattr(checking, "running_on", lambda: "2.x")
  result = check(tmp_path, "Only on: %s, since it must be.\n\n    $ false" % version)
  assert result.skipped == ("1.15" if version == "1.15" else "")
  assert bool(result.problem) == (version == "2.x")


def test_rows(tmp_path):
  (tmp_path / "one.py").write_text(
    '"""One.\n\nExamples B16, B17. Section: queues.\nMore on N4.\n"""')
  assert docstrings.read(tmp_path / "one.py").rows == ["B16", "B17"]
  assert docstrings.read(tmp_path / "one.py").section == "queues"
  assert docstrings.find(tmp_path) == []  # it shows no command
  (tmp_path / "one.py").write_text('"""A `$ ` in a line.\n\n$ is no command.\n"""')
  assert docstrings.find(tmp_path) == []


def test_the_program():
  """Names and rows choose; an unknown one is refused with those that there are."""
  def call(*arguments):
    return subprocess.run(
      [sys.executable, "-m", "tests.examples", *arguments], cwd=str(docstrings.ROOT),
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)

  refused = call("no_such")
  assert refused.returncode == 2 and "no example is called 'no_such'" in refused.stdout
  failed = call("hello_server", "--limit=0")
  assert failed.returncode == 1 and "0 passed, 1 failed, 0 skipped" in failed.stdout
  assert "had not ended" in failed.stdout and "book/hello_server" in failed.stdout


def test_a_second_signal_does_not_keep_it_from_ending_the_example():
  def marked():
    return [path for path in pathlib.Path("/proc").glob("[0-9]*") if is_ours(path)]

  def is_ours(path):
    try:
      return mark.encode() in (path / "environ").read_bytes().split(b"\0")
    except OSError:
      return False

  mark = "TEST_MARK=%s" % uuid.uuid4().hex
  program = subprocess.Popen(
    [sys.executable, "-m", "tests.examples", "hello_server"], cwd=str(docstrings.ROOT),
    stdout=subprocess.PIPE, env=dict(os.environ, TEST_MARK=mark.partition("=")[2]))
  harness.wait_until(lambda: len(marked()) >= 3)  # itself, the shell, the example
  harness.wait_until(
    lambda: program.send_signal(signal.SIGTERM) or program.poll() is not None)
  program.communicate()
  assert program.returncode == 128 + signal.SIGTERM
  assert not marked()
