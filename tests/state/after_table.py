"""What a queue holds after an event, for TensorFlow's operations and ours: the data of a table.

after_table_test.py makes each case on real servers and compares. To print the table as it stands in
docs/queues.md: python -m tests.state.after_table
"""
from __future__ import annotations

KINDS = ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue")
CAPACITY = 4
# What is in the queue when a call begins.
SETUPS = {
  "dequeue": [],
  "dequeue_many(4)": [1, 2, 3],
  "dequeue_up_to(4)": [1, 2, 3],
  "enqueue": [1, 2, 3, 4],
  "enqueue_many of 3": [1, 2],
  "get()": [],
  "get(4)": [1, 2, 3],
  "get(4, up_to=True)": [],
  "put": [1, 2, 3, 4],
  "put of 3": [1, 2],
  "try_dequeue_many(4)": [1, 2, 3],
  "try_dequeue_many(4, up_to=True)": [1, 2, 3],
  "try_enqueue_many of 3": [1, 2],
  "try_enqueue_many of 3, up_to=True": [1, 2],
}
STOCK = [call for call in SETUPS if call.split("_")[0].startswith(("dequeue", "enqueue"))]
OURS = [call for call in SETUPS if call.startswith(("get", "put"))]
TRY = [call for call in SETUPS if call.startswith("try_")]

TIMEOUT, CLOSE, CANCEL = "a timeout", "`close()`", "`close(True)`"
SESSION, KILLED = "the session is closed", "the client is killed"
RESET, STOCK_RESET = "`tf1ps-reset`", "`Session.reset`"
AT_ONCE = "no event"  # for those that never wait
EVENTS = [TIMEOUT, CLOSE, CANCEL, SESSION, KILLED, RESET]

# What the caller sees, where it is not a list of elements or the name of an error's type.
WAITS = "waits on"
GONE = "-"  # nobody is left to see it
DONE = "done"
ENDS = "the session's error"  # which one depends on where it was
DIES = "the ps dies"

_FULL, _PART, _THREE, _TWO = [1, 2, 3, 4], [1, 2, 5, 6], [1, 2, 3], [1, 2]


def _taker(kept, closed, end="OutOfRangeError"):
  """A stock operation that takes: what is left after a time-out, and what a close brings."""
  return {
    TIMEOUT: (kept, "DeadlineExceededError"), CLOSE: closed, CANCEL: closed,
    SESSION: (kept, "CancelledError"), KILLED: (kept, GONE), RESET: ([], closed[1])}


def _putter(left):
  """A stock operation that puts in."""
  return {
    TIMEOUT: (left, "DeadlineExceededError"), CLOSE: (left, WAITS),
    CANCEL: (left, "CancelledError"), SESSION: (left, "CancelledError"), KILLED: (left, GONE),
    RESET: ([], "CancelledError")}


def _ours(call, timeout):
  """One of ours leaves everything as it was."""
  left = SETUPS[call]
  return {
    TIMEOUT: (left, timeout), CLOSE: (left, "QueueEnded"), CANCEL: (left, "QueueCancelled"),
    SESSION: (left, ENDS), KILLED: (left, GONE), RESET: ([], "QueueReset")}


def _try(call, left, count):
  closed = ([], 3) if call == "try_dequeue_many(4, up_to=True)" else (SETUPS[call], 0)
  return {AT_ONCE: (left, count), CLOSE: closed, CANCEL: closed,
          RESET: ([], "InvalidArgumentError")}


# {call: {event: (what is left, what the caller sees)}}
_CASES = {
  "dequeue": _taker([], ([], "OutOfRangeError")),
  "dequeue_many(4)": _taker([], (_THREE, "OutOfRangeError")),
  "dequeue_up_to(4)": _taker([], ([], _THREE)),
  "enqueue": _putter(_FULL),
  "enqueue_many of 3": _putter(_PART),
  "get()": _ours("get()", "QueueEmpty"),
  "get(4)": _ours("get(4)", "QueueEmpty"),
  "get(4, up_to=True)": _ours("get(4, up_to=True)", "QueueEmpty"),
  "put": _ours("put", "QueueFull"),
  "put of 3": _ours("put of 3", "QueueFull"),
  "try_dequeue_many(4)": _try("try_dequeue_many(4)", _THREE, 0),
  "try_dequeue_many(4, up_to=True)": _try("try_dequeue_many(4, up_to=True)", [], 3),
  "try_enqueue_many of 3": _try("try_enqueue_many of 3", _TWO, 0),
  "try_enqueue_many of 3, up_to=True": _try("try_enqueue_many of 3, up_to=True", _PART, 2),
}
# Where a kind differs.
_OF_KIND = {
  (call, "PriorityQueue", event): (_THREE, _CASES[call][event][1])
  for call in ("dequeue_many(4)", "dequeue_up_to(4)") for event in (TIMEOUT, SESSION, KILLED)}
_OF_KIND.update({("dequeue_up_to(4)", "PriorityQueue", event): ([], "OutOfRangeError")
                 for event in (CLOSE, CANCEL, RESET)})


def expected(call, kind, event, version="2"):
  """(what is left, what the caller sees) of one case, on TensorFlow 1 or 2."""
  if event == STOCK_RESET:
    return (DIES, GONE) if version == "2" else ([], "CancelledError")
  return _OF_KIND.get((call, kind, event), _CASES[call][event])


BEGIN, END = "<!-- after_table: begins -->", "<!-- after_table: ends -->"
_OPS = "TensorFlow's operations"


def _list(elements):
  return ",".join(map(str, elements)) or "–"


def _cell(call, kind, event):
  def say(version):
    left, seen = expected(call, kind, event, version)
    if left == DIES:
      return DIES
    if isinstance(seen, list):
      seen = "gets " + _list(seen)
    elif isinstance(seen, int):
      seen = "count %d" % seen
    return "**%s**%s" % (_list(left), "" if seen == GONE else "; " + seen)

  two, one = say("2"), say("1")
  return two if two == one else "2.x: %s. 1.15: %s" % (two, one)


def _rows(title, calls, events):
  """A table with a row for each call, and one more where a PriorityQueue differs."""
  yield "|%s|before|%s|" % (title, "|".join("after " + event for event in events))
  yield "|-" * (2 + len(events)) + "|"
  for call in calls:
    shown = []
    for kind in KINDS:
      cells = [_cell(call, kind, event) for event in events]
      if cells in shown:
        continue
      shown.append(cells)
      yield "|`%s`%s|%s|%s|" % (
        call, " (%s)" % kind if len(shown) > 1 else "", _list(SETUPS[call]), "|".join(cells))


def markdown():
  """The table, as Markdown: one for TensorFlow's operations, one for ours, one for try_."""
  stock = EVENTS[:-1] + [STOCK_RESET, RESET]
  tables = [_rows(_OPS, STOCK, stock), _rows("tf1ps's calls", OURS, EVENTS),
            _rows("tf1ps's operations", TRY, [AT_ONCE, CLOSE, CANCEL, RESET])]
  return "\n\n".join("\n".join(rows) for rows in tables)


if __name__ == "__main__":
  print(markdown())
