"""Makes the authority of a job, and certificates that it signs. Needs the library cryptography.

    FOLDER/authority/ca.pem, key.pem    the authority; whoever has its key can join the job
    FOLDER/NAME/cert.pem, key.pem, ca.pem    what --tls_dir takes, a folder per certificate
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import os
import warnings
from typing import List, Sequence

from tf1ps.compat import Error
from tf1ps.links.identity import AUTHORITY, CERTIFICATE, KEY, IdentityError, check_access

_AUTHORITY_FOLDER = "authority"
_AUTHORITY_DAYS = 3650
_MOST_DAYS = 36500
_BACKDATED = datetime.timedelta(minutes=5)  # clocks of machines differ


class AuthorityError(Error, RuntimeError):
  """A certificate cannot be made."""


def make_certificates(folder: str, groups: Sequence[Sequence[str]], days: float) -> List[str]:
  """Makes certificates, and the authority if the folder has none.

  Args:
    folder: of the authority, and of the folders that are made.
    groups: the hosts that each certificate names: names or IP addresses. The first host names the
      folder. A certificate that is there is replaced, also for a running task; the new certificate
      must name all its hosts.
    days: how long the certificates are valid.

  Returns:
    The folders of the certificates.

  Raises:
    AuthorityError: cryptography is missing, a host is not a name or an address, a file cannot be
      used, or a certificate would lose a host.
  """
  if not 0 < days <= _MOST_DAYS:
    raise AuthorityError("days must be above 0 and at most %d, got %r" % (_MOST_DAYS, days))
  for group in groups:
    for host in group:
      _check_host(host)
  library = _Library()
  try:
    signer = library.authority(os.path.join(folder, _AUTHORITY_FOLDER))
    made = [os.path.join(folder, group[0].replace(":", "_")) for group in groups]
    for each, group in zip(made, groups):
      library.check_names(each, group)
    for each, group in zip(made, groups):
      library.issue(each, group, days, signer)
    return made
  except OSError as error:
    raise AuthorityError("%s: %s" % (error.filename, error.strerror)) from error


def _check_host(host: str) -> None:
  parts = host.split(".")
  if not host or host == _AUTHORITY_FOLDER or not all(
      part.replace("-", "").replace("_", "").isalnum() and part.isascii() for part in parts):
    try:
      ipaddress.ip_address(host)
    except ValueError:
      raise AuthorityError(
        "%r is not a host: give a name or an IP address, without a port" % host) from None


class _Library:
  """The calls of cryptography, which is imported late."""

  def __init__(self):
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 3.7
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
      raise AuthorityError('tf1ps-certs needs the package cryptography: pip install "tf1ps[tls]"'
                           ) from error
    self._x509, self._hashes, self._serialization, self._ec = x509, hashes, serialization, ec

  def authority(self, folder):
    """Returns (certificate, key) of the authority in a folder; makes it if it is missing."""
    paths = [os.path.join(folder, name) for name in (AUTHORITY, KEY)]
    if any(map(os.path.exists, paths)):
      try:
        with open(paths[0], "rb") as certificate, open(paths[1], "rb") as key:
          check_access(key)
          return (self._x509.load_pem_x509_certificate(certificate.read()),
                  self._serialization.load_pem_private_key(key.read(), None))
      except IdentityError as error:
        raise AuthorityError(str(error)) from error
      except (ValueError, TypeError) as error:
        raise AuthorityError("the authority in %s cannot be used: %s" % (folder, error)) from error
    key = self._ec.generate_private_key(self._ec.SECP256R1())
    name = self._name("tf1ps authority")
    builder = self._builder(name, name, key, key, _AUTHORITY_DAYS)
    builder = builder.add_extension(self._x509.BasicConstraints(ca=True, path_length=0), True)
    builder = builder.add_extension(self._usage(key_cert_sign=True, crl_sign=True), True)
    certificate = builder.sign(key, self._hashes.SHA256())
    self._write(folder, {AUTHORITY: self._pem(certificate), KEY: self._pem_of_key(key)})
    return certificate, key

  def check_names(self, folder, hosts):
    """Raises AuthorityError if the certificate in a folder names a host that is not in `hosts`."""
    try:
      with open(os.path.join(folder, CERTIFICATE), "rb") as file:
        there = self._x509.load_pem_x509_certificate(file.read())
      names = there.extensions.get_extension_for_class(self._x509.SubjectAlternativeName).value
    except (FileNotFoundError, ValueError, self._x509.ExtensionNotFound):
      return  # it is replaced
    lost = [str(name.value) for name in names if name not in map(self._alternative, hosts)]
    if lost:
      raise AuthorityError("the certificate in %s names also %s: give all its hosts, with --one, "
                           "or remove the folder" % (folder, ", ".join(lost)))

  def issue(self, folder, hosts, days, signer):
    """Makes a certificate that names hosts, its key, and a copy of the authority's certificate."""
    x509 = self._x509
    certificate, signing_key = signer
    key = self._ec.generate_private_key(self._ec.SECP256R1())
    builder = self._builder(
      self._name("tf1ps " + hosts[0]), certificate.subject, key, signing_key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(self._usage(digital_signature=True), True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(
      [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]), False)
    builder = builder.add_extension(
      x509.SubjectAlternativeName([self._alternative(host) for host in hosts]), False)
    made = builder.sign(signing_key, self._hashes.SHA256())
    # A sidecar that reads between two of these finds a key that does not fit, and tries again.
    self._write(folder, {AUTHORITY: self._pem(certificate), KEY: self._pem_of_key(key),
                         CERTIFICATE: self._pem(made)})

  def _builder(self, subject, issuer, key, signing_key, days):
    now = datetime.datetime.utcnow()
    x509, public = self._x509, key.public_key()
    return (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
            .public_key(public).serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(
              signing_key.public_key()), False))

  def _name(self, text):
    return self._x509.Name([self._x509.NameAttribute(
      self._x509.oid.NameOID.COMMON_NAME, text[:64])])

  def _alternative(self, host):
    try:
      return self._x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
      return self._x509.DNSName(host)

  def _usage(self, **given):
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
             "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return self._x509.KeyUsage(**{name: given.get(name, False) for name in names})

  def _pem(self, certificate):
    return certificate.public_bytes(self._serialization.Encoding.PEM)

  def _pem_of_key(self, key):
    serialization = self._serialization
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())

  def _write(self, folder, files):
    os.makedirs(folder, mode=0o700, exist_ok=True)
    for name, content in files.items():
      path = os.path.join(folder, name)
      with contextlib.suppress(FileNotFoundError):
        os.remove(path + ".new")
      handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
      with os.fdopen(handle, "wb") as file:
        file.write(content)
      os.replace(path + ".new", path)
