"""What the processes of the test's hosts do: they hold namespaces, or become another program."""
from __future__ import annotations

import ctypes
import os
import socket
import threading

_NEW_MOUNTS, _NEW_NAMES, _NEW_NETWORK = 0x20000, 0x4000000, 0x40000000  # CLONE_NEWNS, _NEWUTS, _NET
_BIND, _PRIVATE = 0x1000, 0x4000 | (1 << 18)  # MS_BIND; MS_REC and MS_PRIVATE


def hold_host(name, hosts_file, ready):
  """Is a host of its own, with this name and this /etc/hosts, until it is killed."""
  libc = ctypes.CDLL(None, use_errno=True)
  for call in (
      lambda: libc.unshare(_NEW_MOUNTS | _NEW_NAMES | _NEW_NETWORK),
      lambda: libc.mount(b"none", b"/", None, _PRIVATE, None),
      lambda: libc.mount(hosts_file.encode(), b"/etc/hosts", None, _BIND, None)):
    if call():
      raise OSError(ctypes.get_errno(), "a host of its own")
  socket.sethostname(name)
  with open(ready, "w"):
    pass
  threading.Event().wait()


def become(argv, folder, env):
  """Becomes another program, in this folder and with these variables besides its own."""
  os.chdir(folder)
  os.execvpe(argv[0], argv, dict(os.environ, **env))
