from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import needs
from tf1ps.compat import process_identity

pytestmark = pytest.mark.any_tensorflow
_PRINT = "from tf1ps.compat import process_identity as p; print(p.own_identity()); "


def identity_of_an_ended_process():
  return subprocess.check_output([sys.executable, "-c", _PRINT], text=True).strip()


def part(identity, index, text):
  """The identity with another text in one of its parts."""
  parts = identity.split("-", 4)
  return "-".join([*parts[:index], text, *parts[index + 1:]])


def test_a_process_that_has_ended_and_one_that_lives():
  assert process_identity.has_ended(identity_of_an_ended_process())
  assert not process_identity.has_ended(process_identity.own_identity())


def test_a_process_whose_id_another_one_has_now():
  assert process_identity.has_ended(part(process_identity.own_identity(), 1, "7"))


@pytest.mark.parametrize("index, text", [
  (2, "4026999999"), (2, ""), (3, "0123456789ab"), (3, ""), (4, "elsewhere"), (0, ""), (0, "x")],
  ids=["namespace", "no namespace", "boot", "no boot", "host", "no id", "no number"])
def test_what_cannot_be_compared_is_not_known_to_have_ended(index, text):
  assert not process_identity.has_ended(part(identity_of_an_ended_process(), index, text))


def test_no_identity():
  assert not process_identity.has_ended("") and not process_identity.has_ended("host.7")


def test_a_part_that_the_machine_does_not_tell_proves_nothing(monkeypatch):
  ended = part(identity_of_an_ended_process(), 3, "")
  monkeypatch.setattr(process_identity, "_boot", lambda: "")
  process_identity._identity.cache_clear()
  try:
    assert not process_identity.has_ended(ended)
  finally:
    process_identity._identity.cache_clear()


def test_a_process_cannot_be_seen_from_another_pid_namespace():
  """There, each id of this process's namespace belongs to nobody, or to somebody else."""
  command = ["unshare", "--fork", "--pid", "--mount-proc", "--map-root-user"]
  needs.unshare(*command[1:], "true")
  own = process_identity.own_identity()
  host, inside = subprocess.check_output(
    [*command, sys.executable, "-c", _PRINT + "print(p.has_ended(%r))" % own],
    text=True).split()
  assert inside == "False"
  assert host.split("-")[0] != str(os.getpid()) and host.split("-")[2] != own.split("-")[2]
  assert not process_identity.has_ended(host)
