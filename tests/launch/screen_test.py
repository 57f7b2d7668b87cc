from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from tf1ps.launch import screen

SHOW = """
from tf1ps.launch import screen
shown = screen.Screen()
for step in (1, 2):
  shown.progress("progress: step %d of many" % step)
  shown.line("line %d" % step)
shown.close()
shown.line("the end")
"""


def rendered(data):
  """What a terminal shows after `data`: its lines, each as it was overwritten last."""
  lines = []
  for line in data.decode().replace("\r\n", "\n").split("\n"):
    cells = ""
    for part in line.replace("\x1b[A", "").split("\r"):
      cells = part + cells[len(part):]
    lines.append(cells.rstrip())
  return [line for line in lines if line]


def show_on_terminal(columns, **environ):
  """Runs SHOW on a terminal of its own; returns what that shows in the end."""
  ours, theirs = pty.openpty()
  fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24 if columns else 0, columns, 0, 0))
  data = b""
  with subprocess.Popen([sys.executable, "-c", SHOW], stdout=theirs, stderr=theirs,
                        env=dict(os.environ, **environ)) as process:
    os.close(theirs)
    try:
      piece = os.read(ours, 4096)
      while piece:
        data += piece
        piece = os.read(ours, 4096)
    except OSError:
      pass  # Linux says so that the terminal's other side is closed.
  os.close(ours)
  assert process.returncode == 0
  return rendered(data)


def test_plain_lines_where_there_is_no_terminal():
  lines = []
  shown = screen.Screen(lines.append)
  shown.progress("progress: step 1")
  shown.line("a line")
  shown.progress("progress: step 2")
  shown.close()
  shown.line("the end")
  assert lines == ["progress: step 1", "a line", "progress: step 2", "the end"]


@pytest.mark.parametrize("columns, progress", [
    (80, "progress: step 2 of many"), (17, "progress: step 2"), (0, "progress: step 2 of many")])
def test_progress_keeps_to_one_line_of_a_terminal(columns, progress):
  pytest.importorskip("tqdm")
  assert show_on_terminal(columns) == ["line 1", "line 2", progress, "the end"]


def test_without_tqdm_lines_are_plain(tmp_path):
  (tmp_path / "tqdm.py").write_text("raise ImportError('as if it were not installed')")
  path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
  assert show_on_terminal(80, PYTHONPATH=path) == [
      "progress: step 1 of many", "line 1", "progress: step 2 of many", "line 2", "the end"]


def test_letters_that_the_encoding_lacks_are_escaped():
  environ = dict(os.environ, PYTHONIOENCODING="ascii")
  program = "from tf1ps.launch import screen; screen.Screen().line('Gr\\xfc\\xdfe')"
  output = subprocess.check_output([sys.executable, "-c", program], env=environ)
  assert output == b"Gr\\xfc\\xdfe\n"


def test_output_that_nobody_reads_ends_nothing():
  program = ("import sys; from tf1ps.launch import screen; shown = screen.Screen()\n"
             "shown.line('one')\nsys.stdin.readline()\n"
             "for line in ('two', 'three'): shown.line(line)\n"
             "sys.exit(7)\n")
  environ = dict(os.environ)
  environ.pop("PYTHONUNBUFFERED", None)
  with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ) as process:
    assert process.stdout.readline() == b"one\n"  # At once, though it is no terminal.
    process.stdout.close()
    process.stdin.write(b"\n")
    process.stdin.close()
    assert process.stderr.read() == b""
  assert process.returncode == 7
