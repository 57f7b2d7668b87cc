"""Gives a program encrypted and authenticated links if --tls_dir is given (see the room links).

If the system allows no namespace, or if files are wrong, a program ends before it does any work.
"""

from __future__ import annotations

import os
from typing import Callable, List, Optional

from absl import flags

from tf1ps import links
from tf1ps.cli import command_line, errors
from tf1ps.cluster import parse_address

FLAGS = flags.FLAGS
PROGRAMS = ("ps", "worker", "reset", "status", "top")  # the programs that connect to other tasks
_TASKS = ("ps", "worker")
_refusal: Optional[links.NamespaceError] = None


def begin(program: str, folder: str) -> None:
  """Moves this process behind its links; a task that a launcher started is already there.

  Call it before there is a second thread.

  Args:
    program: the program's name, such as "ps".
    folder: the value of --tls_dir.

  Raises:
    UsageError: the links cannot be set up. For a task without a namespace, `check` raises the
      error, because the task's port is known there.
  """
  global _refusal
  if links.is_inside():
    return
  try:
    links.enter(folder)
  except (links.IdentityError, links.SidecarError) as error:
    raise errors.UsageError(str(error)) from error
  except links.NamespaceError as error:
    if program not in _TASKS:
      raise errors.UsageError(str(error)) from error
    _refusal = error


def check_launcher() -> None:
  """Checks in a launcher that its tasks can have links, and prepares them; raises UsageError."""
  try:
    links.Identity(FLAGS.tls_dir).check("127.0.0.1")
    links.check_namespaces()
    links.silence_grpc()  # the tasks are forked from a process that has imported gRPC
  except (links.IdentityError, links.NamespaceError) as error:
    raise errors.UsageError(str(error)) from error


def check(cluster) -> Optional[str]:
  """Checks that this task can have links.

  Returns:
    A line about the links; None without --tls_dir.

  Raises:
    UsageError: says what is missing, and what to do.
  """
  if FLAGS.tls_dir is None:
    return None
  if _refusal is not None:
    raise errors.UsageError("%s Or leave --tls_dir out, and close the port by a firewall:\n%s" % (
      _refusal, "\n".join(firewall_rules(cluster))))
  if not links.is_inside():
    raise errors.UsageError("--tls_dir must name a folder, on the command line or in a --flagfile")
  try:
    end = links.Identity(FLAGS.tls_dir).check(_place(cluster)[0])
  except links.IdentityError as error:
    raise errors.UsageError(str(error)) from error
  return "links over TLS; the certificate in %s is valid until %s" % (FLAGS.tls_dir, end)


def firewall_rules(cluster) -> List[str]:
  """Returns commands that let only the job's hosts reach this task, and a command to check them."""
  port = _place(cluster)[1]
  hosts = _hosts(cluster)
  rules = []
  for name, is_ipv6 in (("iptables", False), ("ip6tables", True)):
    allowed = ",".join(host for host in hosts if (":" in host) == is_ipv6)
    if allowed:
      rules.append("  %s -A INPUT -p tcp --dport %d -s %s -j ACCEPT" % (name, port, allowed))
    rules.append("  %s -A INPUT -p tcp --dport %d -j DROP" % (name, port))
  return rules + ["Then check it from a machine outside the job. This must find no server:",
                  "  tf1ps-status --ps_hosts=%s --start_timeout=5" % cluster.task.address]


def open_port(cluster, on_lost: Callable[[str], None]) -> None:
  """Opens this task's port to the other tasks.

  Args:
    cluster: the cluster of this task.
    on_lost: called with the reason when the links are lost; ends the process.

  Raises:
    PortTakenError: another process has the port.
    SidecarError: the port cannot be opened for another reason.
  """
  if not links.is_inside():
    return
  from tf1ps.cluster import PortTakenError

  links.on_lost(on_lost)
  try:
    links.listen(*_place(cluster), hosts=_hosts(cluster))
  except links.SidecarError as error:
    if not error.is_taken:
      raise
    raise PortTakenError("%s cannot listen at %s: another process has that port" % (
      cluster.task.name, cluster.task.address)) from error


def inner_address(address):
  """Returns the address at which this process serves HTTP, given the address of a flag."""
  return address._replace(host="127.0.0.1") if links.is_inside() else address


def open_address(address, what: str = "the metrics", flag: str = "--metrics_port") -> None:
  """Opens the address of a flag outside, without TLS; raises MetricsError."""
  if not links.is_inside():
    return
  from tf1ps.monitoring import MetricsError

  try:
    links.relay(address.host, address.port, address.port)
  except links.SidecarError as error:
    raise MetricsError("%s cannot be served: %s. Give another %s" % (what, error, flag)) from error


def _hosts(cluster):
  return sorted({parse_address(task.address, task.name).host for task in cluster.tasks()})


def _place(cluster):
  address = parse_address(cluster.task.address, cluster.task.name)
  return address.host, address.port


def find_folder(argv: List[str]) -> str:
  """Returns the value of --tls_dir on a command line or in its flag files; "" without it."""
  try:
    argv = FLAGS.read_flags_from_files(list(argv))
  except (flags.Error, OSError):
    return ""  # the parse of the flags raises the error again
  return os.path.expanduser(command_line.find_value(argv, "tls_dir") or "")
