"""The link between worker and ps: the loopback device, or a link with a rate and a delay.

A shaped link is two network namespaces, one for all ps and one for all workers, joined by a pair of
virtual devices. `tc` limits the sending rate of each end, and delays its packets. If the kernel has
no netem, the link has a rate but no delay, and the link's name says so. Making namespaces requires
root. The namespaces are removed when the block ends.
"""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple

DELAY_MS = 0.2  # the delay of a packet, each way
_LIMIT = 20.0  # seconds for a command of iproute2
_BUFFER = 2 ** 25  # bytes; TensorFlow's messages here are up to 8 MB
_SUBNET = "10.213.%d.%d"


class Link(NamedTuple):
  """The link between the jobs."""

  name: str  # for people, with rate and delay
  hosts: Dict[str, str]  # {job: the address that its tasks listen on}
  prefixes: Dict[str, List[str]]  # {job: the first words of its tasks' command lines}
  device: str  # the device whose bytes are counted, as a worker sees it


class LinkError(RuntimeError):
  """The link cannot be made here."""


LOOPBACK = Link("loopback", {"ps": "127.0.0.1", "worker": "127.0.0.1"}, {"ps": [], "worker": []},
                "lo")


@contextlib.contextmanager
def link_of(gbit: float = 0):
  """Yields a link.

  Args:
    gbit: the link's rate in Gbit/s, each way; 0: the loopback device.

  Raises:
    LinkError: the user is not root, or a program or a part of the kernel is missing.
  """
  if not gbit:
    yield LOOPBACK
    return
  missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
  if missing or os.geteuid() != 0:
    raise LinkError("a shaped link takes root, and %s of iproute2" % " and ".join(
      missing or ["ip", "tc"]))
  names = {job: "tf1ps-%d-%s" % (os.getpid(), job) for job in ("ps", "worker")}
  try:
    yield _make(names, gbit)
  finally:
    for name in names.values():
      subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, timeout=_LIMIT)


def _make(names, gbit):
  number = os.getpid() % 250
  hosts = {"ps": _SUBNET % (number, 1), "worker": _SUBNET % (number, 2)}
  for name in names.values():
    _run("ip", "netns", "add", name)
    # A system is stopped while it does not have its turn. The data in flight at that moment must
    # fit into the receiver's buffer: a gRPC server closes a connection whose peer reads no data for
    # 20 seconds.
    _run("ip", "netns", "exec", name, "sh", "-c",
         "echo '4096 %d %d' > /proc/sys/net/ipv4/tcp_rmem" % (_BUFFER, 2 * _BUFFER))
  _run("ip", "link", "add", "veth0", "netns", names["ps"], "type", "veth",
       "peer", "name", "veth0", "netns", names["worker"])
  has_delay = True
  for job, name in names.items():
    _run("ip", "-n", name, "addr", "add", hosts[job] + "/24", "dev", "veth0")
    for device in ("lo", "veth0"):
      _run("ip", "-n", name, "link", "set", device, "up")
    has_delay = _shape(name, gbit) and has_delay
  text = "%g Gbit/s, %s" % (gbit, "%g ms" % DELAY_MS if has_delay else "no delay")
  if not has_delay:
    print("benchmarks: this kernel has no netem: the link has its rate, and no delay",
          file=sys.stderr)
  return Link(text, hosts, {job: ["ip", "netns", "exec", name] for job, name in names.items()},
              "veth0")


def _shape(namespace, gbit):
  """Limits the sending rate of one end; returns whether its packets are also delayed."""
  begin = ("tc", "-n", namespace, "qdisc", "add", "dev", "veth0")
  try:
    _run(*begin, "root", "netem", "delay", "%gms" % DELAY_MS, "rate", "%gmbit" % (1000 * gbit),
         "limit", "100000")
    return True
  except LinkError:
    burst = int(gbit * 1e9 / 8 * 0.002)  # bytes: two milliseconds of the rate
    _run(*begin, "root", "tbf", "rate", "%gmbit" % (1000 * gbit), "burst", str(burst),
         "latency", "50ms")
    return False


def _run(*command):
  done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        universal_newlines=True, timeout=_LIMIT)
  if done.returncode:
    raise LinkError("%s: %s" % (" ".join(command), done.stdout.strip()))


def bytes_of(process: int, device: str) -> int:
  """Returns the bytes that a device has carried so far, both ways, as a process sees it.

  Args:
    process: the process id.
    device: the device. The bytes of "lo" are both sent and received, and count once.
  """
  with open("/proc/%d/net/dev" % process) as text:
    for line in text:
      name, _, numbers = line.partition(":")
      if name.strip() == device:
        fields = numbers.split()
        return int(fields[0]) + (0 if device == "lo" else int(fields[8]))
  raise LinkError("process %d sees no device %s" % (process, device))
