"""The certificate of a task, its key, and the authority of its job: the folder of --tls_dir."""

from __future__ import annotations

import os
import shlex
import ssl
import stat
import time
from typing import Optional

from tf1ps.compat import Error

CERTIFICATE, KEY, AUTHORITY = FILES = ("cert.pem", "key.pem", "ca.pem")
_EXPIRED, _NOT_YET, _HOST, _ADDRESS = 10, 9, 62, 64  # of X509_V_ERR in OpenSSL's x509_vfy.h
_WEEK = 7 * 86400.0  # seconds


class IdentityError(Error, RuntimeError):
  """The files of --tls_dir cannot serve this task."""


class Identity:
  """The three files of a folder.

  `contexts` reads them again when a file has changed, so that they can be renewed while the task
  runs.

  Attributes:
    folder: its absolute path.
    last_contexts: the last result of `contexts`, or None.
  """

  def __init__(self, folder: str):
    """Reads nothing yet."""
    self.folder = os.path.abspath(folder)
    self.last_contexts = None
    self._stamp = None

  def path(self, name: str) -> str:
    """Returns the path of a file."""
    return os.path.join(self.folder, name)

  def contexts(self):
    """Returns the contexts (of a client, of a server) for connections that begin now.

    Raises:
      IdentityError: a file is missing or wrong; the next call tries again.
    """
    stamp = self._read_stamp()
    if stamp != self._stamp:
      self.last_contexts = (
        self._load(ssl.PROTOCOL_TLS_CLIENT), self._load(ssl.PROTOCOL_TLS_SERVER))
      self._stamp = stamp
    return self.last_contexts

  def check(self, host: Optional[str] = None) -> str:
    """Checks the files as another task would, by a handshake in memory.

    Args:
      host: a host that the certificate must name; None: any.

    Returns:
      The end of the certificate, such as "Nov 25 09:00:00 2027 GMT".

    Raises:
      IdentityError: names the file, what is wrong with it, and what to do.
    """
    client, server, certificate = self._shake()
    if host is not None:
      client.check_hostname = True
      try:
        _handshake(client, server, host)
      except ssl.SSLError as error:
        names = ", ".join(name for _, name in certificate.get("subjectAltName", ())) or "no host"
        raise IdentityError(
          "%s does not name %s, the host of this task in the cluster: it names %s. Make a "
          "certificate for this host with tf1ps-certs." % (
            self.path(CERTIFICATE), host, names)) from error
    return certificate["notAfter"]

  def warning(self) -> Optional[str]:
    """Says that the certificate on the disk ends soon; None if it does not.

    Soon is within a week, or within the last tenth of its whole time.

    Raises:
      IdentityError: as `check`.
    """
    _, _, certificate = self._shake()
    begin, end = (ssl.cert_time_to_seconds(certificate[name]) for name in ("notBefore", "notAfter"))
    left = end - time.time()
    if left > min(_WEEK, (end - begin) / 10):
      return None
    return "%s ends on %s, in %.1f hours: replace it by tf1ps-certs before" % (
      self.path(CERTIFICATE), certificate["notAfter"], left / 3600)

  def _read_stamp(self):
    try:
      stats = [os.stat(self.path(name)) for name in FILES]
    except OSError as error:
      raise self._missing(error) from error
    return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]

  def _shake(self):
    """Loads the files and tries them; returns both contexts and the certificate as a dict."""
    client, server = self._load(ssl.PROTOCOL_TLS_CLIENT), self._load(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname = False
    try:
      return client, server, _handshake(client, server, None)
    except ssl.SSLError as error:
      raise IdentityError("%s %s" % (self.path(CERTIFICATE), explain(error))) from error

  def _missing(self, error: OSError):
    name = os.path.basename(error.filename or "")
    if isinstance(error, FileNotFoundError):
      return IdentityError("--tls_dir=%s has no %s: it needs cert.pem, key.pem and ca.pem, which "
                           "tf1ps-certs makes" % (self.folder, name))
    return IdentityError("%s cannot be read: %s" % (error.filename, error.strerror))

  def _load(self, protocol):
    context = ssl.SSLContext(protocol)
    if ssl.HAS_TLSv1_3:
      context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.hostname_checks_common_name = False
    self._read_stamp()  # an error of `ssl` does not name the file
    for name in FILES:
      try:
        with open(self.path(name), "rb") as file:
          if name == KEY:
            check_access(file)
      except OSError as error:
        raise self._missing(error) from error
    try:
      context.load_verify_locations(self.path(AUTHORITY))
    except (ssl.SSLError, ValueError) as error:
      raise IdentityError("%s is not a certificate in PEM format (%s)" % (
        self.path(AUTHORITY), error)) from error
    try:
      context.load_cert_chain(self.path(CERTIFICATE), self.path(KEY), password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
      if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        raise IdentityError("%s is not the key of %s" % (
          self.path(KEY), self.path(CERTIFICATE))) from error
      raise IdentityError(
        "%s and %s must be a certificate and its key without a passphrase, in PEM format (%s)" % (
          self.path(CERTIFICATE), self.path(KEY), error)) from error
    return context


def check_access(key) -> None:
  """Raises IdentityError if more users than its owner can read or write the file of a key.

  The group may read a file of another user: so Kubernetes gives root's secret to a task (fsGroup).

  Args:
    key: the open file.
  """
  status = os.fstat(key.fileno())
  forbidden = 0o066 if status.st_uid == os.geteuid() else 0o026
  if status.st_mode & forbidden:
    raise IdentityError(
      "%s has mode %04o: more users than its owner can read or change it. Run: chmod 600 %s" % (
        key.name, stat.S_IMODE(status.st_mode), shlex.quote(key.name)))


def explain(error: ssl.SSLError) -> str:
  """Says what is wrong with a certificate, as the rest of a sentence."""
  code = getattr(error, "verify_code", None)
  if code == _EXPIRED:
    return "has expired: make another certificate with tf1ps-certs"
  if code == _NOT_YET:
    return "is not valid yet: compare the clocks of the machines"
  if code in (_HOST, _ADDRESS):
    return "does not name that host"
  if code is not None:
    return "is not signed by the authority in ca.pem (%s)" % error.verify_message
  return "cannot be used: %s" % error


def _handshake(client, server, host):
  """Lets two contexts meet in memory; returns the server's certificate as a dict."""
  to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
  ends = [client.wrap_bio(to_client, to_server, server_hostname=host),
          server.wrap_bio(to_server, to_client, server_side=True)]
  for end in ends * 3:
    try:
      end.do_handshake()
    except ssl.SSLWantReadError:
      pass
  return ends[0].getpeercert()
