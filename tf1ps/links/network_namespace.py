"""Moves a process into a network namespace of its own, in which only its sidecar reaches it.

Root needs nothing more. Anyone else also gets a user namespace, where the system permits it; that
takes a process with one thread. Linux only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct

from tf1ps.compat import Error

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_SET_DUMPABLE = 4  # PR_SET_DUMPABLE
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP


class NamespaceError(Error, RuntimeError):
  """This process cannot have a network namespace of its own."""


def check_namespaces() -> None:
  """Raises NamespaceError if a process of this user cannot have a network namespace.

  A child tries it.
  """
  read_end, write_end = os.pipe()
  child = os.fork()
  if not child:
    code = 1
    try:
      enter_namespace()
      code = 0
    except BaseException as error:
      os.write(write_end, str(error).encode("utf-8", "replace"))
    finally:
      os._exit(code)
  os.close(write_end)
  with os.fdopen(read_end, "rb") as reader:
    text = reader.read().decode("utf-8", "replace")
  if os.waitpid(child, 0)[1]:
    raise NamespaceError(text or "the attempt was killed")


def enter_namespace() -> None:
  """Moves this process into a new network namespace, and brings its loopback device up.

  Raises:
    NamespaceError: the system does not permit it.
  """
  try:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK):
      user, group = os.geteuid(), os.getegid()
      _check(libc.unshare(_NEW_USER | _NEW_NETWORK))
      # New credentials hide /proc/self from this process, which reads its own figures there.
      _check(libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0))
      for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (user, user)),
                         ("gid_map", "%d %d 1" % (group, group))):
        with open("/proc/self/" + name, "w") as file:
          file.write(text)
    _bring_up("lo")
  except (OSError, AttributeError) as error:
    reason = getattr(error, "strerror", None) or str(error)
    reason = {errno.EINVAL: "the process has several threads",
              errno.ENOSPC: "the limit in /proc/sys/user is reached"}.get(
                getattr(error, "errno", None), reason)
    raise NamespaceError(
      "--tls_dir needs a network namespace for the task, which this machine does not permit (%s). "
      "Permit unprivileged user namespaces, or in a container the call unshare." % (
        reason)) from error


def _check(result):
  if result:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def _bring_up(device):
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    name = device.encode("ascii")
    answer = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", name, 0))
    flags = struct.unpack("16sH14x", answer)[1]
    fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", name, flags | _UP))
