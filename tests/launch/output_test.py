from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading

import pytest

from tests.launch import sample_tasks
from tf1ps.launch import output
from tf1ps.launch.fork_server import TaskProcess


class Pipes(object):
  """Two tasks' pipes, read by an `Output`; a line takes `seconds` to be shown."""

  def __init__(self, log_dir, seconds=0, folds=False):
    self.lines = []
    self.seconds = seconds
    self.processes, self.ends = [], []
    for index in (0, 1):
      read_end, write_end = os.pipe()
      self.processes.append(TaskProcess("worker %d" % index, 4000 + index, read_end))
      self.ends.append(write_end)
    self.output = output.Output(self.processes, output.Screen(self.log), log_dir,
                                folds=folds)

  def log(self, line):
    threading.Event().wait(self.seconds)
    self.lines.append(line)

  def end(self):
    for end in self.ends:
      os.close(end)
    self.output.close(60)


@pytest.fixture
def pipes(tmp_path):
  return Pipes(str(tmp_path))


def log_of(folder, index):
  """A log file's bytes below the last separator."""
  with open(str(folder / ("worker-%d.log" % index)), "rb") as log:
    return log.read().rpartition(b" ----\n")[2]


def test_complete_lines_are_shown_with_the_tasks_name(pipes, tmp_path):
  os.write(pipes.ends[0], b"first\nsec")
  assert sample_tasks.wait_until(lambda: pipes.lines)
  os.write(pipes.ends[1], b"other\n")
  assert sample_tasks.wait_until(lambda: len(pipes.lines) == 2)
  os.write(pipes.ends[0], b"ond\n\nlast")
  pipes.end()
  assert pipes.lines == [
      "[worker 0] first", "[worker 1] other", "[worker 0] second", "[worker 0] ",
      "[worker 0] last"]
  assert log_of(tmp_path, 0) == b"first\nsecond\n\nlast"
  assert log_of(tmp_path, 1) == b"other\n"


@pytest.mark.parametrize("written, shown", [
    (b"10%\r 50%\r100%\n", ["100%"]), (b"windows\r\n", ["windows"]), (b"10%\r20%\r", ["20%"]),
    (b"a\xff\x00\xfe\n", ["a\ufffd\x00\ufffd"]), ("Grüße\n".encode("utf-8"), ["Grüße"]),
    (b"\r\n", [""])])
def test_what_was_to_be_seen_last_is_shown_and_all_is_logged(pipes, tmp_path, written, shown):
  os.write(pipes.ends[0], written)
  pipes.end()
  assert pipes.lines == ["[worker 0] " + text for text in shown]
  assert log_of(tmp_path, 0) == written


def test_a_letter_may_arrive_in_two_pieces(pipes):
  os.write(pipes.ends[0], b"Gr\xc3")
  os.write(pipes.ends[1], b"seen\n")
  assert sample_tasks.wait_until(lambda: pipes.lines)
  os.write(pipes.ends[0], b"\xbc\n")
  pipes.end()
  assert pipes.lines == ["[worker 1] seen", "[worker 0] Grü"]


@pytest.mark.slow
def test_much_output_is_complete(pipes, tmp_path):
  with open(str(tmp_path / "numbers"), "wb") as numbers:
    numbers.write(b"".join(b"%d\n" % i for i in range(100000)))
  with open(str(tmp_path / "numbers"), "rb") as numbers:
    subprocess.run(["cat"], stdin=numbers, stdout=pipes.ends[0], check=True)
  pipes.end()
  assert pipes.lines == ["[worker 0] %d" % i for i in range(100000)]
  assert log_of(tmp_path, 0) == (tmp_path / "numbers").read_bytes()


def test_a_line_without_end_is_shown_in_pieces(pipes, tmp_path):
  text = b"x" * 300000
  subprocess.run(["cat"], input=text, stdout=pipes.ends[0], check=True)
  pipes.end()
  assert "".join(line[len("[worker 0] "):] for line in pipes.lines).encode() == text
  assert 2 <= len(pipes.lines) <= 5
  assert log_of(tmp_path, 0) == text


def test_last_lines_leave_progress_out(pipes):
  os.write(pipes.ends[0], b"".join(
    b"line %d\n13:05:%02d progress: step %d\n" % (i, i, i) for i in range(30)))
  pipes.end()
  assert pipes.output.last_lines(pipes.processes[0], 3) == ["line 27", "line 28", "line 29"]
  assert pipes.output.last_lines(pipes.processes[1], 3) == []
  assert "[worker 0] 13:05:29 progress: step 29" in pipes.lines


WARNED = (b"/home/p.py:31: UserWarning: `tf.layers.flatten` is deprecated and will be removed.\n"
          b"  x = tf.layers.flatten(x)\n")
SAVED = (b"13:05:00 saved /tmp/tf1ps-model-x.tmp/model.ckpt-90 (0.1 s)\n"
         b"13:05:00 saved /m/model.ckpt-0 (0.1 s)\n"
         b"ps 0: the chief released this task: the job has ended, 4.3 s, exit code 0\n"
         b"worker 0: metrics at http://127.0.0.1:9100/metrics\n")
OTHERS = (b"  two blanks\n/home/p.py:31: UserWarning: slow\n  its line\n"
          b"13:05:00 saved /m/model.ckpt-40 (0.1 s)\n")


@pytest.mark.parametrize("folds", [True, False])
def test_the_screen_leaves_noise_out_and_the_log_file_has_it(tmp_path, folds):
  pipes = Pipes(str(tmp_path), folds=folds)
  written = WARNED + OTHERS + WARNED + SAVED
  os.write(pipes.ends[0], written)
  pipes.end()
  shown = OTHERS if folds else written
  assert pipes.lines == ["[worker 0] " + line for line in shown.decode().splitlines()]
  assert log_of(tmp_path, 0) == written


def test_the_end_of_others_says_nothing_new(tmp_path):
  pipes = Pipes(str(tmp_path), folds=True)
  pipes.output.begin_end()
  os.write(pipes.ends[0], b"13:05:00 signal 15: leaving\nthe model is saved\n"
           b"worker 0 (chief): ended by signal 15, exit code 143\n")
  pipes.end()
  assert pipes.lines == ["[worker 0] the model is saved"]


def test_a_second_start_continues_the_file(tmp_path):
  for text in (b"one\n", b"two"):
    pipes = Pipes(str(tmp_path))
    os.write(pipes.ends[0], text)
    pipes.end()
  lines = (tmp_path / "worker-0.log").read_text().splitlines()
  assert [line for line in lines if not line.startswith("----")] == ["one", "", "two"]
  first, second = [line for line in lines if line.startswith("----")]
  assert first.startswith("---- worker 0, process 4000, started 2") and first.endswith(" ----")
  assert second.startswith("---- worker 0, process 4000, started 2")


def test_a_pipe_that_somebody_holds_open_ends_within_the_limit(pipes, tmp_path):
  os.close(pipes.ends.pop())
  os.write(pipes.ends[0], b"complete\npartial")
  assert pipes.output.wait_end(pipes.processes[1], 60)
  assert not pipes.output.wait_end(pipes.processes[0], 0.1)
  assert sample_tasks.wait_until(lambda: pipes.lines)
  pipes.output.close(0.5)
  pipes.output.close(0.5)
  assert pipes.output.wait_end(pipes.processes[0], 60)
  assert pipes.output.wait_end(pipes.processes[0], 0)
  assert pipes.lines == ["[worker 0] complete", "[worker 0] partial"]
  assert log_of(tmp_path, 0) == b"complete\npartial"
  os.close(pipes.ends[0])


def test_a_slow_screen_gets_all_lines():
  pipes = Pipes(None, seconds=0.005)
  os.write(pipes.ends[0], b"line\n" * 100)
  for end in pipes.ends:
    os.close(end)
  pipes.output.close(60)
  assert len(pipes.lines) == 100


@pytest.mark.slow
def test_a_task_that_never_stops_writing_is_left_behind():
  pipes = Pipes(None)
  with subprocess.Popen(["yes"], stdout=pipes.ends[0]) as process:
    assert sample_tasks.wait_until(lambda: pipes.lines)
    pipes.output.close(0.05)
    process.kill()
  for end in pipes.ends:
    os.close(end)


def test_a_full_disk_ends_the_log_and_not_the_job(tmp_path):
  (tmp_path / "worker-0.log").symlink_to("/dev/full")
  pipes = Pipes(str(tmp_path))
  os.write(pipes.ends[0], b"one\ntwo\n")
  pipes.end()
  assert pipes.lines[0].startswith("cannot write %s any more: " % (tmp_path / "worker-0.log"))
  assert pipes.lines[1:] == ["[worker 0] one", "[worker 0] two"]


def test_without_a_folder_there_are_no_files(tmp_path):
  pipes = Pipes(None)
  os.write(pipes.ends[0], b"one\n")
  pipes.end()
  assert pipes.lines == ["[worker 0] one"]
  assert list(tmp_path.iterdir()) == []


# The screen.


SHOW = """
from tf1ps.launch import output
shown = output.Screen()
for name in ("ps 0", "worker 0", "worker 1"):
  shown.task(name, "running")
for step in (1, 2):
  shown.progress("worker 0", "13:05:59 progress: step %d of many, 0:02 left" % step)
  shown.line("line %d" % step)
shown.progress("worker 1", "13:06:00 progress: step 7")
shown.task("ps 0", "ended")
shown.line("line 3")
"""
CLOSE = """
shown.close()
shown.line("the end")
"""


def show_on_terminal(columns, rows=24, term="xterm", program=SHOW):
  """Runs a program on a terminal of its own; returns the lines that this shows in the end."""
  return lines_of(terminal_after(columns, rows, term, program))


def lines_of(terminal):
  gone = ["".join(line[i].data for i in range(terminal.columns)) for line in terminal.history.top]
  return [line.rstrip() for line in [*gone, *terminal.display] if line.strip()]


def terminal_after(columns, rows=24, term="xterm", program=SHOW):
  """Runs a program on a terminal of its own; returns this terminal."""
  import pyte  # late: there is none in the environment of TensorFlow 1.15

  ours, theirs = pty.openpty()
  fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", rows if columns else 0, columns, 0, 0))
  data = b""
  with subprocess.Popen([sys.executable, "-c", program], stdout=theirs, stderr=theirs,
                        env=dict(os.environ, TERM=term)) as process:
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
  terminal = pyte.HistoryScreen(columns or 80, rows)
  pyte.ByteStream(terminal).feed(data)
  return terminal


def test_plain_lines_where_there_is_no_terminal():
  lines = []
  shown = output.Screen(lines.append)
  shown.task("worker 0", "running")
  shown.progress("worker 0", "progress: step 1")
  shown.line("a line")
  shown.progress("worker 0", "progress: step 2")
  shown.close()
  shown.line("the end")
  assert lines == [
    "[worker 0] progress: step 1", "a line", "[worker 0] progress: step 2", "the end"]


@pytest.mark.parametrize("columns, rows, block", [
  (80, 24, ["ps 0      ended", "worker 0  step 2 of many, 0:02 left", "worker 1  step 7"]),
  (18, 24, ["ps 0      ended", "worker 0  step 2", "worker 1  step 7"]),
  (0, 24, ["ps 0      ended", "worker 0  step 2 of many, 0:02 left", "worker 1  step 7"]),
  (80, 4, ["ps 0      ended", "and 2 more tasks"])])
def test_each_task_has_a_line_of_the_terminal(columns, rows, block):
  assert show_on_terminal(columns, rows) == ["line 1", "line 2", "line 3", *block]


BARS = """
from tf1ps.launch import output
shown = output.Screen()
shown.progress("worker 0", "13:05:59 progress: step 5 of 10, 0:02 left")
shown.progress("worker 1", "13:05:59 progress: step 7 (25%), loss 0.1")
shown.task_line("ps 0", "a line")
shown.line("failed", "ERROR")
"""


def test_progress_has_a_bar_and_names_have_colours(monkeypatch):
  bars = ["worker 0  " + 10 * "\u2501" + 10 * " " + "  step 5 of 10, 0:02 left",
          "worker 1  " + 5 * "\u2501" + 15 * " " + "  step 7 (25%), loss 0.1"]
  monkeypatch.delenv("NO_COLOR", raising=False)
  terminal = terminal_after(80, program=BARS)
  assert lines_of(terminal) == ["[ps 0] a line", "failed", *bars]
  assert [terminal.buffer[y][1].fg for y in range(5)] == [
    "magenta", "red", "cyan", "cyan", "default"]
  assert terminal.buffer[0][7].fg == "default" and terminal.buffer[2][10].fg == "green"
  monkeypatch.setenv("NO_COLOR", "1")
  terminal = terminal_after(80, program=BARS)
  assert lines_of(terminal) == ["[ps 0] a line", "failed", *bars]
  assert {cell.fg for row in terminal.buffer.values() for cell in row.values()} == {"default"}


def test_the_end_has_no_lines_of_tasks():
  assert show_on_terminal(80, program=SHOW + CLOSE) == ["line 1", "line 2", "line 3", "the end"]


def test_a_terminal_that_cannot_erase_gets_plain_lines():
  assert show_on_terminal(80, term="dumb") == [
    "[worker 0] 13:05:59 progress: step 1 of many, 0:02 left", "line 1",
    "[worker 0] 13:05:59 progress: step 2 of many, 0:02 left", "line 2",
    "[worker 1] 13:06:00 progress: step 7", "line 3"]


def test_letters_that_the_encoding_lacks_are_escaped():
  environ = dict(os.environ, PYTHONIOENCODING="ascii")
  program = "from tf1ps.launch import output; output.Screen().line('Gr\\xfc\\xdfe')"
  output = subprocess.check_output([sys.executable, "-c", program], env=environ)
  assert output == b"Gr\\xfc\\xdfe\n"


def test_output_that_nobody_reads_ends_nothing():
  program = ("import sys; from tf1ps.launch import output; shown = output.Screen()\n"
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
