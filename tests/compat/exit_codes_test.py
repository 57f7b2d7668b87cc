from __future__ import annotations

import signal

import pytest

from tf1ps.compat import exit_codes


def test_codes():
  assert (exit_codes.EXIT_FAILED, exit_codes.EXIT_PORT_TAKEN, exit_codes.EXIT_RELEASED) == (
    1, 98, 97)
  assert exit_codes.signal_exit_code(15) == 143
  assert exit_codes.signal_exit_code(signal.SIGINT) == 130


@pytest.mark.parametrize("number", [0, -9, 65, 137])
def test_a_number_that_is_no_signal_is_refused(number):
  with pytest.raises(ValueError, match="signal's number"):
    exit_codes.signal_exit_code(number)


def test_the_name_of_a_signal():
  assert [exit_codes.signal_name(number) for number in (15, 63)] == ["SIGTERM", "signal 63"]
