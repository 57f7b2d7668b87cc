"""A network of the run's own: each task lives in a network namespace, on a cable to one bridge.

A cable can be pulled: nothing reports an error, packets are lost, as after a real cable. It can be
slowed by `tc`. Making namespaces takes root; without it all tasks share the loopback device, and
there are no cuts and no slow links.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from typing import List

_LIMIT = 20.0  # seconds for a command of iproute2
_CLONE_NEWNET = 0x40000000
_SLOW = ["tbf", "rate", "400kbit", "burst", "4kb", "latency", "500ms"]


class NetworkError(RuntimeError):
  """The network cannot be made here."""


class Network:
  """The namespaces of a run's tasks. A context manager, which removes them at its end."""

  def __init__(self, tasks: List[str]):
    """Chooses names and addresses; makes nothing yet."""
    number = os.getpid()
    self._hub = "chaos-%d-hub" % number
    self._names = {task: "chaos-%d-%d" % (number, i) for i, task in enumerate(tasks)}
    self._cables = {task: "cable%d" % i for i, task in enumerate(tasks)}
    self.hosts = {task: "10.214.%d.%d" % (number % 250, i + 1) for i, task in enumerate(tasks)}

  def __enter__(self) -> "Network":
    try:
      self._make()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *unused):
    for name in [self._hub, *self._names.values()]:
      if os.path.exists(self._path(name)):
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, timeout=_LIMIT)

  def _make(self):
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
      raise NetworkError("network namespaces take root, and ip and tc of iproute2")
    _run("ip", "netns", "add", self._hub)
    _run("ip", "-n", self._hub, "link", "add", "bridge0", "type", "bridge")
    _run("ip", "-n", self._hub, "link", "set", "bridge0", "up")
    for task, name in self._names.items():
      cable = self._cables[task]
      _run("ip", "netns", "add", name)
      _run("ip", "link", "add", cable, "netns", self._hub, "type", "veth",
           "peer", "name", "eth0", "netns", name)
      _run("ip", "-n", self._hub, "link", "set", cable, "master", "bridge0", "up")
      _run("ip", "-n", name, "addr", "add", self.hosts[task] + "/16", "dev", "eth0")
      # BBR, which some machines use, takes up to a minute to find that a slow cable is fast again.
      _run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno")
      for device in ("lo", "eth0"):
        _run("ip", "-n", name, "link", "set", device, "up")

  def namespace(self, task: str) -> str:
    """Returns the path by which a process enters the namespace of a task."""
    return self._path(self._names[task])

  def _path(self, name):
    return "/var/run/netns/" + name

  def cut(self, task: str) -> None:
    """Pulls the cable of a task out of the bridge."""
    _run("ip", "-n", self._hub, "link", "set", self._cables[task], "nomaster")

  def mend(self, task: str) -> None:
    """Puts the cable of a task back into the bridge."""
    _run("ip", "-n", self._hub, "link", "set", self._cables[task], "master", "bridge0")

  def slow(self, task: str) -> None:
    """Limits the rate of a cable, both ways."""
    _run("tc", "-n", self._hub, "qdisc", "add", "dev", self._cables[task], "root", *_SLOW)
    _run("tc", "-n", self._names[task], "qdisc", "add", "dev", "eth0", "root", *_SLOW)

  def hurry(self, task: str) -> None:
    """Takes the limit of a cable away."""
    _run("tc", "-n", self._hub, "qdisc", "del", "dev", self._cables[task], "root")
    _run("tc", "-n", self._names[task], "qdisc", "del", "dev", "eth0", "root")


def enter(namespace: str) -> None:
  """Moves this process, which has one thread, into a network namespace."""
  with open(namespace) as file:
    if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
      error = ctypes.get_errno()
      raise OSError(error, "setns(%s): %s" % (namespace, os.strerror(error)))


def _run(*command):
  try:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          universal_newlines=True, timeout=_LIMIT)
  except subprocess.TimeoutExpired as error:
    raise NetworkError(str(error)) from error
  if done.returncode:
    raise NetworkError("%s: %s" % (" ".join(command), done.stdout.strip()))
