"""tf1ps-certs: makes the authority of a job, and the certificates for --tls_dir."""

from __future__ import annotations

import argparse
import sys
from typing import List

from tf1ps import links, version

_NAME = "tf1ps-certs"


def run(argv: List[str]) -> int:
  """Makes certificates; returns the exit code: 0, 1 after an error, 2 for a wrong command line."""
  try:
    request = _parse(argv)
  except SystemExit as error:  # --help, or a wrong flag, whose error argparse has printed
    return error.code or 0
  groups = [request.hosts] if request.one else [[host] for host in request.hosts]
  try:
    folders = links.make_certificates(request.dir, groups, request.days)
  except links.AuthorityError as error:
    print("%s: %s" % (_NAME, error), file=sys.stderr)
    return 1
  for folder, hosts in zip(folders, groups):
    print("--tls_dir=%s for %s, valid for %g days" % (folder, ", ".join(hosts), request.days))
  print("%s/authority has the key of the authority: keep it away from the job's machines. Whoever "
        "has it can join the job." % request.dir)
  return 0


def _parse(argv):
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Makes a certificate for each host of a job, signed by the job's own authority, "
                "for --tls_dir. The first call makes the authority in DIR/authority. A later call "
                "uses it for further hosts, or renews certificates while the job runs.")
  parser.add_argument("hosts", nargs="+", metavar="HOST",
                      help="a name or an IP address, as the cluster has it, without the port")
  parser.add_argument("--dir", required=True,
                      help="the folder of the authority and of DIR/HOST, a folder per certificate")
  parser.add_argument("--one", action="store_true",
                      help="make one certificate that names all hosts, in the folder of the first")
  parser.add_argument("--days", type=float, default=365.0,
                      help="how long the certificates are valid (default: 365)")
  parser.add_argument("--version", action="version", version="%s %s" % (_NAME, version.__version__))
  return parser.parse_args(argv)
