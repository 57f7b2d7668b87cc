from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tf1ps.compat import streams

PRINTS = ("import os, sys; from tf1ps.compat import streams; streams.guard_streams()\n"
          "print('Gr\\xfc\\xdfe'); sys.stderr.write('two\\n')\n"
          "os._exit(7 if [os.fstat(n) for n in range(3)] and %r else 8)\n")


@pytest.fixture
def pipe(set_timing):
  """A pipe's read end, and an output that writes to it."""
  set_timing(streams, output_stall_limit=0.01)
  read_end, write_end = os.pipe()
  yield read_end, streams.DroppingOutput(write_end)
  os.close(write_end)


def test_a_reader_that_is_gone_costs_the_text_alone(pipe):
  read_end, output = pipe
  os.close(read_end)
  assert [output.write(b"one\n"), output.write(b"three\n")] == [4, 6]


def test_a_reader_at_rest_costs_what_the_pipe_cannot_hold(pipe):
  read_end, output = pipe
  big = b"x" * (1 << 20)
  assert output.write(big) == len(big)
  assert output.write(b"lost\n") == 5
  taken = os.read(read_end, 1 << 20)
  assert set(taken) == {ord("x")}
  assert output.write(b"here again\n") == 11
  lost = len(big) - len(taken) + 5
  assert os.read(read_end, 1000) == (
    b"\n[tf1ps: %d bytes of output were dropped]\nhere again\n" % lost)
  os.close(read_end)


@pytest.mark.parametrize("redirection", [">/dev/full 2>&1", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_process_whose_output_cannot_be_written(redirection, unbuffered):
  environ = dict(os.environ, PYTHONUNBUFFERED=unbuffered, PYTHONIOENCODING="ascii")
  command = 'exec "$0" -c "$1" ' + redirection
  assert subprocess.call(
    ["sh", "-c", command, sys.executable, PRINTS % "guarded"], env=environ,
    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 7


def test_a_stream_that_the_program_has_replaced_stays(monkeypatch, tmp_path):
  with open(tmp_path / "mine", "w") as mine:
    monkeypatch.setattr(sys, "stdout", mine)
    monkeypatch.setattr(sys, "stderr", mine)
    streams.guard_streams()
    assert sys.stdout is mine and sys.stderr is mine


def test_an_interrupted_line_is_not_written_twice(monkeypatch, tmp_path):
  path, write = tmp_path / "output", os.write
  with open(str(path), "wb") as file:
    output = streams._guarded(None, file.fileno())

    def write_and_interrupt(descriptor, data):
      write(descriptor, data)
      raise KeyboardInterrupt  # as a signal handler does when the call returns

    with monkeypatch.context() as patch:
      patch.setattr(os, "write", write_and_interrupt)
      with pytest.raises(KeyboardInterrupt):
        print("one", file=output)
    print("two", file=output)
    output.flush()
  assert path.read_text() == "one\ntwo\n"
