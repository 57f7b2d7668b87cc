"""What some tests need of the machine, beside the packages of the extra `test`.

A test that does not find it is skipped with "needs X". BUILD.md has the same table.
"""
from __future__ import annotations

import shutil
import subprocess

import pytest

# {need: how to get it}
NEEDS = {
  "a GPU": "a GPU that TensorFlow sees, and `CUDA_VISIBLE_DEVICES=0`",
  "Chromium": "`apt-get install chromium`",
  "Compose": "`apt-get install docker-compose`",
  "FUSE": "root, and the device `/dev/fuse`",
  "IPv6": "the address `::1`",
  "many open files": "a hard limit of 1,200 or more: `ulimit -Hn`",
  "mounts": "root",
  "namespaces": "root, or unprivileged user namespaces; `apt-get install util-linux iproute2`",
  "packet counters": "root",
  "setpriv": "`apt-get install util-linux`, and root",
  "sshd": "`apt-get install openssh-server`",
  "systemd-analyze": "`apt-get install systemd`",
}


def skip(need: str, detail: object = "") -> None:
  """Skips the test that runs: this machine lacks a thing of NEEDS."""
  assert need in NEEDS, need
  pytest.skip("needs %s%s" % (need, ": %s" % detail if str(detail) else ""))


def unshare(*command: str) -> None:
  """Skips the test that runs unless `unshare` can run a command: flags and a program."""
  if not shutil.which("unshare"):
    skip("namespaces", "there is no unshare")
  done = subprocess.run(["unshare", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        universal_newlines=True)
  if done.returncode:
    skip("namespaces", done.stdout.strip())
