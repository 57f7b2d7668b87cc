from __future__ import annotations

import pytest

from tf1ps.session import reset_watch
from tf1ps.state import ControlRecord

pytestmark = pytest.mark.any_tensorflow


class Beats(object):
  """Stands for a heartbeat; notes the tokens that it has sent."""

  def __init__(self):
    self.sent, self._fields = [], {}

  def set(self, **fields):
    self._fields.update(fields)

  def beat(self):
    self.sent.append(self._fields["reset"])


@pytest.mark.parametrize("longest, ends", [(60.0, True), (0.05, False)])
def test_a_task_waits_as_long_as_a_reset_may_take(set_timing, longest, ends):
  set_timing(reset_watch, reset_wait=longest, fast_poll_interval=0.01)
  looks, beats = [], Beats()

  def read():
    looks.append(1)
    done = ends and len(looks) > 30  # 0.3 s at least: more than the limit of the task
    return {"reset:job": ControlRecord({"token": "one", "done": done}, 0.0)}

  reset_watch.ResetWatch(beats, read, "job").wait(0.02, lambda: None)
  assert set(beats.sent) == {"one"}
  assert (len(looks) == 31) == ends  # else the process of the reset is dead
