"""Gives a program encrypted and authenticated links, where --tls_dir is given (see room links).

It is all or nothing: without a namespace, or with files that cannot serve, a program ends before it
does any work.
"""

from __future__ import annotations

import os
from typing import List, Optional

from absl import flags

from tf1ps import links
from tf1ps.cli import command_line, errors
from tf1ps.cluster import parse_address
from tf1ps.compat import EXIT_FAILED

FLAGS = flags.FLAGS
PROGRAMS = ("ps", "worker", "reset", "status", "top")  # those that reach other tasks
_TASKS = ("ps", "worker")
_refusal: Optional[links.NamespaceError] = None


def begin(program: str, folder: str) -> None:
  """Moves this process behind its links; call it before there is a second thread.

  A task of a launcher is there already.

  Args:
    program: such as "ps".
    folder: the value of --tls_dir.

  Raises:
    UsageError: a program that is no task cannot have links. A task says so in `check`, where its
      port is known.
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
  """Checks in a launcher that its tasks can have links; raises UsageError."""
  try:
    links.Identity(FLAGS.tls_dir).check("127.0.0.1")
    links.check_namespaces()
  except (links.IdentityError, links.NamespaceError) as error:
    raise errors.UsageError(str(error)) from error


def check(cluster) -> Optional[str]:
  """Checks that this task can have links.

  Returns:
    A line about them; None without --tls_dir.

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
  """Commands that let only the job's hosts reach this task, and one that checks them."""
  port = _place(cluster)[1]
  hosts = sorted({parse_address(task.address, task.name).host for task in cluster.tasks()})
  rules = []
  for name, there in (("iptables", [host for host in hosts if ":" not in host]),
                      ("ip6tables", [host for host in hosts if ":" in host])):
    if there:
      rules.append("  %s -A INPUT -p tcp --dport %d -s %s -j ACCEPT" % (
        name, port, ",".join(there)))
    rules.append("  %s -A INPUT -p tcp --dport %d -j DROP" % (name, port))
  return rules + ["Then check it from a machine outside the job. This must find no server:",
                  "  tf1ps-status --ps_hosts=%s --start_timeout=5" % cluster.task.address]


def open_port(cluster) -> None:
  """Opens this task's port to the other tasks.

  Raises:
    PortTakenError: another process has it.
    SidecarError: any other reason.
  """
  if not links.is_inside():
    return
  from tf1ps.cli import app
  from tf1ps.cluster import PortTakenError

  def end(reason):
    try:
      app.last_line("%s %d: %s" % (cluster.job_name, cluster.task_index, reason), EXIT_FAILED)
    finally:
      os._exit(EXIT_FAILED)  # nothing can be saved without the ps

  links.on_lost(end)
  try:
    links.listen(*_place(cluster))
  except links.SidecarError as error:
    if not error.is_taken:
      raise
    raise PortTakenError("%s cannot listen at %s: another process has that port" % (
      cluster.task.name, cluster.task.address)) from error


def deliver() -> None:
  """Has the sidecar deliver what this process has sent, where its end would end the sidecar."""
  links.deliver()


def inner_metrics(address):
  """The address at which the metrics are served, given that of the flag."""
  return address._replace(host="127.0.0.1") if links.is_inside() else address


def open_metrics(address) -> None:
  """Opens the address of the metrics outside, without TLS; raises MetricsError."""
  if not links.is_inside():
    return
  from tf1ps.monitoring import MetricsError

  try:
    links.relay(address.host, address.port, address.port)
  except links.SidecarError as error:
    raise MetricsError("the metrics cannot be served: %s. Give another --metrics_port" % (
      error,)) from error


def _place(cluster):
  found = parse_address(cluster.task.address, cluster.task.name)
  return found.host, found.port


def find_folder(argv: List[str]) -> str:
  """Returns the value of --tls_dir on a command line and in its flag files; "" without one."""
  try:
    argv = FLAGS.read_flags_from_files(list(argv))
  except (flags.Error, OSError):
    return ""  # the error comes again when the flags are parsed
  return os.path.expanduser(command_line.find_value(argv, "tls_dir") or "")
