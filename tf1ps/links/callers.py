"""Connections from outside whose handshake has not ended: their number and their time are bounded.

Anyone can open connections and make no handshake. So that a task of the job always finds a place:

1. A caller waits for its first bytes without a thread, and not for long: the sidecar of a task
   sends them as soon as it is connected. Then a thread makes the handshake.
2. All callers together have `PLACES`; an address of no host of the job has `OF_A_STRANGER`.
3. Where no place is free, an earlier caller leaves: a stranger before a host of the job, a caller
   that has sent nothing before the others, the oldest first. A stranger never takes the place of a
   host of the job.

A caller whose handshake has ended has left its place: no link is touched here.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import Callable, Dict, FrozenSet, Iterable

from tf1ps.compat import TIMING

PLACES = 256
OF_A_STRANGER = 64


class Caller:
  """A connection from outside.

  Attributes:
    socket: the connection.
    source: the address that it comes from, such as "10.0.0.1".
    since: when it came, by time.monotonic().
    speaks: whether it has sent something; from then on its thread owns the socket.
  """

  def __init__(self, connection: socket.socket, place):
    """Takes what `socket.accept` returns."""
    connection.setblocking(False)
    self.socket, self.source = connection, _bare(place[0])
    self.since, self.speaks = time.monotonic(), False


class Hosts:
  """The addresses of the job's hosts. Names are looked up in a thread: that may take long.

  Attributes:
    addresses: those that are known.
  """

  def __init__(self):
    """Knows no host."""
    self.addresses: FrozenSet[str] = frozenset()
    self._by_name: Dict[str, FrozenSet[str]] = {}
    self._due = 0.0
    self._thread = threading.Thread()  # none runs yet

  def add(self, names: Iterable[str]) -> None:
    """Adds names or addresses of hosts."""
    self._by_name.update(dict.fromkeys(names, frozenset()))
    self._due = 0.0

  def look_up(self) -> None:
    """Looks all names up again, but not at once again: a name may get another address."""
    if time.monotonic() >= self._due and not self._thread.is_alive():
      self._due = time.monotonic() + TIMING.reminder_interval
      self._thread = threading.Thread(target=self._look_up, daemon=True)
      self._thread.start()

  def _look_up(self):
    for name in list(self._by_name):
      with contextlib.suppress(OSError, UnicodeError):  # the addresses stay that it had
        places = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        self._by_name[name] = frozenset(_bare(place[0]) for *_, place in places)
    self.addresses = frozenset().union(*self._by_name.values())


class Callers:
  """The callers of a sidecar. All methods but `leave` are for the thread of its selector."""

  def __init__(self, selector: selectors.BaseSelector, begin: Callable[[Caller], None],
               say: Callable[[str], None]):
    """Has no callers yet.

    Args:
      selector: the data of its keys are functions without arguments that return True.
      begin: starts the thread that makes the handshake of a caller.
      say: logs a line.
    """
    self.hosts = Hosts()
    self._selector, self._begin, self._say = selector, begin, say
    self._lock = threading.RLock()
    self._callers: Dict[Caller, None] = {}  # in the order in which they came

  def arrive(self, connection: socket.socket, place) -> None:
    """Takes a connection that has just been accepted."""
    new = Caller(connection, place)
    with self._lock:
      loser = self._loser(new)
      while loser is not None and loser is not new:
        if loser.speaks or not self._hear(loser):
          self._dismiss(loser, ", and others need its place")
        loser = self._loser(new)
      self._callers[new] = None
      self._selector.register(connection, selectors.EVENT_READ, lambda: self._hear(new) or True)
      if loser is new:
        self._dismiss(new, ", and hosts of the job have all places")

  def expire(self) -> None:
    """Closes the callers that have sent nothing within the limit."""
    with self._lock:
      for caller in list(self._callers):
        if time.monotonic() - caller.since < TIMING.link_first_limit:
          break
        if not caller.speaks and not self._hear(caller):
          self._dismiss(caller, " within %g s" % TIMING.link_first_limit)

  def leave(self, caller: Caller) -> bool:
    """Frees the place of a caller; returns whether the caller still had it.

    Its thread calls it when the handshake has ended, and before it closes the socket.
    """
    with self._lock:
      had_place = caller in self._callers
      self._callers.pop(caller, None)
      return had_place

  def close(self) -> None:
    """Ends them all."""
    with self._lock:
      for caller in list(self._callers):
        self._dismiss(caller, ", and the task has ended")

  def _loser(self, new):
    """Returns the caller that has to leave for another, or None. `min` takes the oldest."""
    ours = self.hosts.addresses
    if new.source not in ours:
      same = [each for each in self._callers if each.source == new.source]
      if len(same) >= OF_A_STRANGER:
        return min(same, key=lambda each: each.speaks)
    if len(self._callers) < PLACES:
      return None
    self.hosts.look_up()
    return min((each for each in self._callers if new.source in ours or each.source not in ours),
               key=lambda each: (each.source in ours, each.speaks), default=new)

  def _hear(self, caller):
    """Starts the thread of a caller that has sent something; returns False if it has not."""
    with self._lock:
      if caller.speaks or caller not in self._callers:  # an event that is out of date
        return True
      try:
        first = caller.socket.recv(1, socket.MSG_PEEK)
      except BlockingIOError:
        return False
      except OSError:
        first = b""
      self._selector.unregister(caller.socket)
      if first:
        caller.speaks = True
        self._begin(caller)
      else:
        del self._callers[caller]
        caller.socket.close()
      return True

  def _dismiss(self, caller, reason):
    del self._callers[caller]
    seen = "has sent nothing"
    if caller.speaks:
      seen = "has not ended its handshake"
      with contextlib.suppress(OSError):
        caller.socket.shutdown(socket.SHUT_RDWR)  # its thread closes it
    else:
      self._selector.unregister(caller.socket)
      caller.socket.close()
    self._say("refuses a connection from %s: it %s%s" % (caller.source, seen, reason))


def _bare(address: str) -> str:
  """Returns an address without the marks of its family and its interface."""
  return address.replace("::ffff:", "").partition("%")[0]
