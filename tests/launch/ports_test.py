from __future__ import annotations

import socket

import pytest

from tests import needs
from tf1ps.launch import ports


def listen(family, address):
  listener = socket.socket(family)
  if family == socket.AF_INET6:
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
  listener.bind((address, 0))
  listener.listen(1)
  return listener


def test_ports_are_distinct_free_and_not_ephemeral():
  first, last = ports.ephemeral_range()
  chosen = ports.find_free_ports(20)
  assert len(set(chosen)) == 20
  for port in chosen:
    assert not first <= port <= last
    with socket.socket() as server:
      server.bind(("", port))
  assert ports.find_free_ports(0) == []


def test_addresses():
  found = ports.find_free_addresses(2)
  assert len(set(found)) == 2 and all(one.startswith("127.0.0.1:") for one in found)


@pytest.mark.parametrize("family, address", [
    (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, ""), (socket.AF_INET6, "::")])
def test_a_port_that_is_taken_on_any_interface_is_passed_over(family, address):
  try:
    listener = listen(family, address)
  except OSError:
    needs.skip("IPv6")
  with listener:
    taken = listener.getsockname()[1]
    free, = ports.find_free_ports(1)
    assert ports.find_free_ports(1, candidates=[taken, free]) == [free]


def test_all_are_held_until_there_are_enough():
  free, = ports.find_free_ports(1)
  with pytest.raises(RuntimeError, match="only 1 of 2 TCP ports"):
    ports.find_free_ports(2, candidates=[free, free])


@pytest.mark.parametrize("ephemeral, candidates", [
    ((32768, 60999), (10000, 32767)), ((49152, 65535), (10000, 49151)),
    ((1024, 60000), (60001, 65535)), ((1024, 65000), (1024, 65535))])
def test_candidates_stay_out_of_the_ephemeral_range_where_there_is_room(ephemeral, candidates):
  assert ports.candidate_range(*ephemeral) == candidates


@pytest.mark.parametrize("n", [-1, 1.0, "2", True, None])
def test_a_number_that_is_none_is_refused(n):
  with pytest.raises(ValueError, match="number of ports"):
    ports.find_free_ports(n)
