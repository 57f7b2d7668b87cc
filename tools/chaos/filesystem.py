"""A file system over a directory that does less than a local disk does.

A process of the run serves it through the kernel's FUSE, so everything in a task sees it, also
TensorFlow's savers in C++. Each task has a mount of its own. What differs from the directory:

  keeps    The kernel keeps a name, or that there is none, and a file's attributes for so many
           seconds after a task has looked. So a task sees the changes of others late, and its own
           at once, as on NFS with `nocto`. Listings and the bytes of an open file are as they are.
  renames  False: a rename fails with ENOSYS, as over a store of objects.

It differs from NFS: a file that another task has replaced stays readable under the name that is
kept (there: ESTALE), and a new look at an old name costs up to `keeps` seconds also at an open.
There are no links, no locks and no extended attributes, and an fsync does nothing.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import struct
import subprocess
import threading
from typing import Dict, List, Sequence

_REQUEST = struct.Struct("<IIQQIIII")  # length, operation, number, node, user, group, process, 0
_REPLY = struct.Struct("<IiQ")  # length, minus errno, number
_ATTRIBUTES = struct.Struct("<6Q10I")
_OPENED = struct.Struct("<QII")
_MOST = 1 << 17  # bytes of a write
_SERVED = (7, 31)  # the version of the protocol
_BIG_WRITES = 1 << 5
_FORGET, _INTERRUPT, _FORGET_SEVERAL = 2, 36, 42  # these have no reply
_OPEN_FLAGS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_TRUNC


def serve(directory: str, mounts: Sequence[str], keeps: float, renames: bool, ready: str) -> None:
  """Serves a directory at several places, until they are unmounted; runs as a process of its own.

  Args:
    directory: the directory.
    mounts: where it is mounted.
    keeps, renames: see above.
    ready: a file that is written when all is mounted.

  Raises:
    OSError: a mount is not permitted.
  """
  threads = []
  try:
    for at in mounts:
      served = _Mount(directory, keeps, renames)
      served.mount(at)
      threads.append(threading.Thread(target=served.serve, daemon=True))
      threads[-1].start()
  except OSError:
    for at in mounts:
      subprocess.run(["umount", "--lazy", at], stderr=subprocess.DEVNULL)
    raise
  with open(ready, "w"):
    pass
  for thread in threads:
    thread.join()


class _Node:
  """A file or directory that the kernel knows."""

  def __init__(self, file):
    self.file, self.known = file, 0

  @property
  def path(self):
    return "/proc/self/fd/%d" % self.file


class _Mount:
  """One mount. Each operation takes a node and the request's bytes, and returns the reply's."""

  def __init__(self, directory, keeps, renames):
    self._nodes: Dict[int, _Node] = {1: _Node(os.open(directory, os.O_PATH | os.O_DIRECTORY))}
    self._lists: Dict[int, List[str]] = {}  # of open directories
    self._numbers = itertools.count(1)
    self._keeps, self._renames = (int(keeps), int(keeps % 1 * 10 ** 9)), renames
    self._operations = {
      1: self._look_up, 3: self._attributes_of, 4: self._set_attributes, 8: self._make_node,
      9: self._make_directory, 10: self._unlink, 11: self._remove_directory, 12: self._rename,
      14: self._open, 15: self._read, 16: self._write, 17: self._statistics, 18: self._release,
      20: self._nothing, 25: self._nothing, 26: self._begin, 27: self._open_directory,
      28: self._list, 29: self._release_directory, 30: self._nothing, 35: self._create,
      38: self._nothing}

  def mount(self, at):
    """Mounts it; `serve` answers from then on."""
    self._kernel = os.open("/dev/fuse", os.O_RDWR)
    options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions" % (
      self._kernel)
    if ctypes.CDLL(None, use_errno=True).mount(
        b"tf1ps", os.fsencode(at), b"fuse", ctypes.c_ulong(0), options.encode()):
      number = ctypes.get_errno()
      raise OSError(number, "mount of FUSE: %s" % os.strerror(number))

  def serve(self):
    """Answers requests until it is unmounted."""
    while True:
      try:
        request = os.read(self._kernel, 2 * _MOST)
      except OSError as error:
        if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
          continue  # the caller has given up its request
        return
      _, operation, number, node, *_ = _REQUEST.unpack_from(request)
      body = request[_REQUEST.size:]
      if operation in (_FORGET, _FORGET_SEVERAL):
        self._forget_all(operation, node, body)
      elif operation != _INTERRUPT:
        self._answer(number, *self._perform(operation, node, body))

  def _perform(self, operation, node, body):
    try:
      if operation not in self._operations:
        return errno.ENOSYS, b""
      return 0, self._operations[operation](self._nodes[node or 1], body)
    except OSError as error:
      return error.errno, b""
    except KeyError:
      return errno.ESTALE, b""

  def _answer(self, number, problem, reply):
    try:
      os.write(self._kernel, _REPLY.pack(_REPLY.size + len(reply), -problem, number) + reply)
    except OSError:
      pass  # the caller has given up its request

  # What the kernel knows.

  def _entry(self, file):
    """Replies with a node for an open file, which is kept or closed."""
    found = os.fstat(file)
    if found.st_ino in self._nodes:
      os.close(file)
    else:
      self._nodes[found.st_ino] = _Node(file)
    self._nodes[found.st_ino].known += 1
    return self._entry_head(found.st_ino) + _attributes(found)

  def _entry_head(self, number):
    seconds, nanoseconds = self._keeps
    return struct.pack("<4Q2I", number, 0, seconds, seconds, nanoseconds, nanoseconds)

  def _look_up(self, node, body):
    return self._entry_of(node, _names(body)[0])

  def _entry_of(self, node, name):
    try:
      return self._entry(os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=node.file))
    except FileNotFoundError:
      if not any(self._keeps):
        raise
      return self._entry_head(0) + _ATTRIBUTES.pack(*[0] * 16)  # the kernel keeps that, too

  def _forget_all(self, operation, node, body):
    if operation == _FORGET:
      self._forget(node, *struct.unpack_from("<Q", body))
      return
    for index in range(struct.unpack_from("<I", body)[0]):
      self._forget(*struct.unpack_from("<QQ", body, 8 + 16 * index))

  def _forget(self, number, times):
    node = self._nodes.get(number)
    if node is None or number == 1:
      return
    node.known -= times
    if node.known <= 0:
      os.close(self._nodes.pop(number).file)

  def _begin(self, unused_node, body):
    read_ahead = struct.unpack_from("<4I", body)[2]
    return struct.pack("<4I2H2I2HI28x", *_SERVED, read_ahead, _BIG_WRITES, 12, 9, _MOST, 1, 0, 0, 0)

  def _nothing(self, unused_node, unused_body):
    return b""

  # Attributes.

  def _attributes_of(self, node, unused_body):
    seconds, nanoseconds = self._keeps
    return struct.pack("<QII", seconds, nanoseconds, 0) + _attributes(os.fstat(node.file))

  def _set_attributes(self, node, body):
    (valid, _, _, size, _, accessed, modified, _, accessed_part, modified_part, _, mode, _, user,
     group, _) = struct.unpack_from("<2I6Q8I", body)
    if valid & 1:
      os.chmod(node.path, mode & 0o7777)
    if valid & 6:
      os.chown(node.path, user if valid & 2 else -1, group if valid & 4 else -1)
    if valid & 8:
      os.truncate(node.path, size)
    if valid & (128 | 256):
      os.utime(node.path)
    elif valid & (16 | 32):
      os.utime(node.path, ns=(accessed * 10 ** 9 + accessed_part,
                              modified * 10 ** 9 + modified_part))
    return self._attributes_of(node, body)

  def _statistics(self, node, unused_body):
    found = os.statvfs(node.path)
    return struct.pack(
      "<5Q4I24x", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree,
      found.f_bsize, found.f_namemax, found.f_frsize, 0)

  # Names.

  def _make_node(self, node, body):
    mode = struct.unpack_from("<I", body)[0]
    name = _names(body[16:])[0]
    os.mknod(name, mode, dir_fd=node.file)
    return self._entry_of(node, name)

  def _make_directory(self, node, body):
    mode, mask = struct.unpack_from("<2I", body)
    name = _names(body[8:])[0]
    os.mkdir(name, mode & ~mask, dir_fd=node.file)
    return self._entry_of(node, name)

  def _unlink(self, node, body):
    os.unlink(_names(body)[0], dir_fd=node.file)
    return b""

  def _remove_directory(self, node, body):
    os.rmdir(_names(body)[0], dir_fd=node.file)
    return b""

  def _rename(self, node, body):
    if not self._renames:
      raise OSError(errno.ENOSYS, "no rename")
    old, new = _names(body[8:])
    os.rename(old, new, src_dir_fd=node.file,
              dst_dir_fd=self._nodes[struct.unpack_from("<Q", body)[0]].file)
    return b""

  # Open files and directories.

  def _open(self, node, body):
    flags = struct.unpack_from("<I", body)[0]
    return _OPENED.pack(os.open(node.path, flags & _OPEN_FLAGS), 0, 0)

  def _create(self, node, body):
    flags, mode, mask = struct.unpack_from("<3I", body)
    name = _names(body[16:])[0]
    file = os.open(name, flags & (_OPEN_FLAGS | os.O_EXCL) | os.O_CREAT, mode & ~mask,
                   dir_fd=node.file)
    return self._entry_of(node, name) + _OPENED.pack(file, 0, 0)

  def _read(self, unused_node, body):
    file, offset, size = struct.unpack_from("<QQI", body)
    return os.pread(file, size, offset)

  def _write(self, unused_node, body):
    file, offset, size = struct.unpack_from("<QQI", body)
    return struct.pack("<II", os.pwrite(file, body[40:40 + size], offset), 0)

  def _release(self, unused_node, body):
    os.close(struct.unpack_from("<Q", body)[0])
    return b""

  def _open_directory(self, node, unused_body):
    number = next(self._numbers)
    self._lists[number] = [".", ".."] + os.listdir(node.path)
    return _OPENED.pack(number, 0, 0)

  def _list(self, unused_node, body):
    number, offset, size = struct.unpack_from("<QQI", body)
    reply = b""
    for position, each in enumerate(self._lists[number][offset:], offset + 1):
      name = os.fsencode(each)
      padding = b"\0" * (-len(name) % 8)
      entry = struct.pack("<QQII", position, position, len(name), 0) + name + padding
      if len(reply) + len(entry) > size:
        break
      reply += entry
    return reply

  def _release_directory(self, unused_node, body):
    self._lists.pop(struct.unpack_from("<Q", body)[0], None)
    return b""


def _names(body):
  """The texts at the end of a request, which end with a zero each."""
  return [os.fsdecode(name) for name in body.split(b"\0")[:-1]]


def _attributes(found):
  times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
  return _ATTRIBUTES.pack(
    found.st_ino, found.st_size, found.st_blocks, *(each // 10 ** 9 for each in times),
    *(each % 10 ** 9 for each in times), found.st_mode, found.st_nlink, found.st_uid, found.st_gid,
    0, 4096, 0)
