"""Hosts for tests: each is a process with a network, an /etc/hosts and a name of its own.

They are joined by the bridge that the failure matrix has. All have the same /etc/hosts, which is
the DNS of the test: a host appears in it when it starts, and a new host may take an old name.
"""
from __future__ import annotations

import os
import sys

from tests import harness
from tests.deploy import host_tasks
from tests.survival import matrix_job

TASK = "from tf1ps.cli import console; console.task()"
_ENTER = 'cd "$0" && exec "$@"'  # to enter a mount namespace leads to its root


class Hosts(object):
  """The hosts of a test."""

  def __init__(self, start, folder):
    self._start, self._folder = start, str(folder)
    self._network = matrix_job.Network(start, folder)
    self._file = os.path.join(self._folder, "hosts")
    self._addresses = {}  # by name
    self._count = 0
    self._write()
    self.programs = os.path.join(self._folder, "bin")  # for the PATH
    os.mkdir(self.programs)
    self.add_program("tf1ps-task", "#!/bin/sh\nexec %s -c '%s' \"$@\"\n" % (sys.executable, TASK))

  def add_program(self, name, text):
    """Puts a script on the PATH of what runs on the hosts."""
    path = os.path.join(self.programs, name)
    with open(path, "w") as file:
      file.write(text)
    os.chmod(path, 0o755)

  def add(self, hostname, name):
    """Starts a host, with an address that no host has had, under a name of DNS.

    Returns:
      The id of a process on it, and the address.
    """
    self._count += 1
    ready = os.path.join(self._folder, "host %d is there" % self._count)
    host = self._start("host %s" % hostname, host_tasks.hold_host, hostname, self._file, ready)
    harness.wait_until(lambda: os.path.exists(ready) or not host.is_running, what=hostname)
    if not host.is_running:
      raise matrix_job.NotPermitted("hosts of its own: %s" % host.output)
    address = "10.213.8.%d" % self._count
    self._network.wire(str(self._count), host.pid, address)
    self._addresses[name] = address
    self._write()
    return host.pid, address

  def command(self, pid, argv, folder):
    """The command that runs another one on a host."""
    return ["nsenter", "-t", str(pid), "-n", "-m", "-u", "sh", "-c", _ENTER, str(folder), *argv]

  def _write(self):
    text = "127.0.0.1 localhost\n" + "".join(
      "%s %s\n" % (address, name) for name, address in self._addresses.items())
    with open(self._file, "r+" if os.path.exists(self._file) else "w") as file:
      file.write(text)  # in place: it is mounted, and read at any time
      file.truncate()
