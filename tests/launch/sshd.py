"""An sshd of the test's own on 127.0.0.1, with keys of its own in a folder."""
from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess

from tests import harness

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
MISSING = None if SSHD and shutil.which("ssh-keygen") and shutil.which("ssh") else (
  "needs sshd, ssh and ssh-keygen: apt-get install openssh-server openssh-client")

_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 100
"""


class Sshd(object):
  """A running sshd.

  Attributes:
    path: a folder with a program `ssh` that is the client with the options for this sshd.
    host: for the file of hosts.
    pid: its process id.
  """

  def __init__(self, folder, port, pid):
    self._folder, self.pid = folder, pid
    self.host = "%s@127.0.0.1" % getpass.getuser()
    self._ssh = " ".join([
      shutil.which("ssh"), "-F", "none", "-p", port, "-i", "%s/key" % folder, "-o",
      "IdentitiesOnly=yes", "-o", "LogLevel=ERROR", "-o",
      "UserKnownHostsFile=%s/known" % folder, "-o", "StrictHostKeyChecking=accept-new"])
    self.path = self.path_with("path")

  def path_with(self, name, options=""):
    """Makes a folder `name` like `path`, with further options of the client; returns it."""
    path = os.path.join(self._folder, name)
    os.mkdir(path)
    with open(os.path.join(path, "ssh"), "w") as file:
      file.write('#!/bin/sh\nexec %s %s "$@"\n' % (self._ssh, options))
    os.chmod(file.name, 0o700)
    return path

  def connections(self):
    """The processes of sshd that serve each connection: lists of ids."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
      with contextlib.suppress(OSError), open("/proc/%s/stat" % name) as file:
        head, _, tail = file.read().rpartition(")")
        if head.partition("(")[2].startswith("sshd"):
          parents[int(name)] = int(tail.split()[1])
    found = [[pid] for pid, parent in parents.items() if parent == self.pid]
    for one in found:
      one += [pid for pid, parent in parents.items() if parent in one]
    return found


@contextlib.contextmanager
def running(folder):
  """Yields an `Sshd`; its files are in `folder`, which only this user may read."""
  folder = str(folder)
  os.chmod(folder, 0o700)
  for name in ("host_key", "key"):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(
      folder, name)], check=True)
  address, = harness.addresses(1)
  port = address.rpartition(":")[2]
  with open(os.path.join(folder, "config"), "w") as file:
    file.write(_CONFIG.format(folder=folder, port=port))
  if os.geteuid() == 0:
    os.makedirs("/run/sshd", exist_ok=True)  # sshd of root insists on it
  with open(os.path.join(folder, "log"), "wb") as log:
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", os.path.join(folder, "config")],
                               stdout=log, stderr=log)
  try:
    def is_up():
      with open(os.path.join(folder, "log")) as log:
        text = log.read()
      assert process.poll() is None, text
      return "listening" in text

    harness.wait_until(is_up, what="sshd")
    yield Sshd(folder, port, process.pid)
  finally:
    process.terminate()
    process.wait()
