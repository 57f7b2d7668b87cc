from __future__ import annotations

import json
import os
import signal

import grpc
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, strangers
from tf1ps.compat import worker_service

LIMIT = harness.LIMIT  # for a call that takes milliseconds


@pytest.fixture(scope="module")
def two_ps(forks):
  """The addresses of two ps."""
  jobs = {"ps": harness.addresses(2)}
  tasks = [forks.start("ps", cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for task in tasks:
    task.wait_for("up")
  yield jobs["ps"]
  for task in tasks:
    task.kill()


def code_of_get_status(address, timeout=LIMIT):
  with pytest.raises(worker_service.CallError) as raised:
    worker_service.get_status(address, timeout)
  assert str(raised.value).startswith(raised.value.code.name + ": ")
  return raised.value.code


def test_each_server_names_itself(two_ps):
  found = [worker_service.get_status(address, LIMIT) for address in two_ps]
  names = [[device.name for device in devices if "/device:CPU:0" in device.name]
           for devices in found]
  assert names == [["/job:ps/replica:0/task:%d/device:CPU:0" % i] for i in range(2)]
  incarnations = {device.incarnation for devices in found for device in devices}
  assert len(incarnations) == len(found[0]) + len(found[1]) and 0 not in incarnations
  assert found == [worker_service.get_status(address, LIMIT) for address in two_ps]


def test_the_incarnations_are_those_that_tensorflow_tells(two_ps):
  with tf.Session("grpc://" + two_ps[0], tf.Graph()) as session:
    told = {device.name: device.incarnation & (2 ** 64 - 1) for device in session.list_devices()
            if "/task:0/" in device.name}
  found = {device.name: device.incarnation
           for device in worker_service.get_status(two_ps[0], LIMIT)}
  assert told == found


def test_a_server_that_was_restarted_has_another_incarnation(start):
  jobs = {"ps": harness.addresses(1)}
  found = []
  for _ in range(2):
    task = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    task.wait_for("up")
    found.append(worker_service.get_status(jobs["ps"][0], LIMIT))
    task.kill()
  assert [device.name for device in found[0]] == [device.name for device in found[1]]
  assert found[0][0].incarnation != found[1][0].incarnation
  assert code_of_get_status(jobs["ps"][0]) == grpc.StatusCode.UNAVAILABLE


def test_a_server_that_stands_still_costs_the_timeout(start):
  jobs = {"ps": harness.addresses(1)}
  task = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  task.wait_for("up")
  task.signal(signal.SIGSTOP)
  assert code_of_get_status(jobs["ps"][0], 0.5) == grpc.StatusCode.DEADLINE_EXCEEDED
  with pytest.raises(worker_service.CallError) as raised:
    worker_service.cleanup_all(jobs["ps"][0], ["c"], 0.5)
  assert raised.value.code == grpc.StatusCode.DEADLINE_EXCEEDED


def test_one_container_of_one_task_is_cleared_and_no_session_ends(two_ps):
  graph = tf.Graph()
  with graph.as_default():
    variables = {}
    for ps, container, kind in [(ps, container, kind) for ps in (0, 1)
                                for container in ("", "a", "b") for kind in ("ref", "resource")]:
      with tf.device("/job:ps/task:%d" % ps), tf.container(container):
        name = "%s-%s-%d" % (container or "default", kind, ps)
        variables[name] = tf.get_variable(name, initializer=1.0, use_resource=kind == "resource")
    there = {name: tf.is_variable_initialized(v) for name, v in variables.items()}
    initialise = tf.group([v.initializer for n, v in variables.items() if n.startswith("a")])
    initialise_all = tf.global_variables_initializer()
    add = {name: v.assign_add(1.0, read_value=False) for name, v in variables.items()}

  def cleared(session):
    return {name for name, value in session.run(there).items() if not value}

  with tf.Session("grpc://" + two_ps[0], graph) as session, \
      tf.Session("grpc://" + two_ps[1], graph) as other:
    session.run(initialise_all)
    session.run(add)
    worker_service.cleanup_all(two_ps[1], ["a", "not-there"], LIMIT)
    assert cleared(session) == cleared(other) == {"a-ref-1", "a-resource-1"}
    other.run(initialise)
    session.run(add)
    values = session.run(variables)
    assert values == {n: 2.0 if n.startswith("a") else 3.0 for n in variables}
    worker_service.cleanup_all(two_ps[0], ["ps", "b"], LIMIT)  # "ps" is the default one
    assert cleared(other) == {"default-ref-0", "default-resource-0", "b-ref-0", "b-resource-0"}
    session.run(initialise_all)
    assert set(other.run(variables).values()) == {1.0}


def test_each_server_names_its_version(two_ps):
  assert [worker_service.get_version(address, LIMIT) for address in two_ps] == (
    2 * [tf.version.VERSION])


def test_no_version_without_a_tensorflow_server():
  with pytest.raises(worker_service.CallError, match="UNAVAILABLE"):
    worker_service.get_version("127.0.0.1:1", LIMIT)
  with strangers.grpc_server("tensorflow.WorkerService", b"") as address:
    with pytest.raises(worker_service.CallError, match="took a graph for a newer TensorFlow"):
      worker_service.get_version(address, LIMIT)


@pytest.mark.parametrize("containers", [[], (), [""], ["a", ""], "", "ab"])
def test_no_name_and_an_empty_name_are_refused(containers):
  with pytest.raises(ValueError, match="a list of at least one name, and no name may be empty"):
    worker_service.cleanup_all("127.0.0.1:1", containers, LIMIT)


@pytest.mark.parametrize("answer", [
    b"", b"\0" * 100, b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.0 400 Bad Request\r\n\r\n",
    os.urandom(1000)], ids=["nothing", "zeros", "ssh", "http", "random"])
def test_junk_instead_of_grpc(answer):
  with strangers.talker(answer) as address:
    assert code_of_get_status(address) == grpc.StatusCode.UNAVAILABLE


def test_a_grpc_server_of_another_service():
  with strangers.grpc_server("somebody.Else", b"") as address:
    assert code_of_get_status(address) == grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(worker_service.CallError, match="UNIMPLEMENTED"):
      worker_service.cleanup_all(address, ["c"], LIMIT)


NAME = b"\x0a\x01d"  # field 1, the name: "d"
INCARNATION = b"\x31\x07\0\0\0\0\0\0\0"  # field 6, fixed64: 7


def device(*fields):
  message = b"".join(fields)
  return b"\x0a" + bytes([len(message)]) + message


@pytest.mark.parametrize("answer", [
    device(NAME),  # no incarnation
    device(INCARNATION),  # no name
    device(NAME, INCARNATION)[:-1],  # the end is missing
    device(b"\x0a\x01\xff", INCARNATION),  # a name that is no UTF-8
    device(b"\x08\x05", INCARNATION),  # a number for a name
    device(NAME, b"\x30\x07"),  # a varint for a fixed64
    b"\x08\x05",  # a number for a device
    b"\x0b",  # a wire type that nothing of ours has
    b"\x80", b"\x0a", b"\xff" * 50,
    json.dumps({"status": "ok"}).encode(),
])
def test_an_answer_in_another_format(answer):
  with strangers.grpc_server("tensorflow.WorkerService", answer) as address:
    assert code_of_get_status(address) == grpc.StatusCode.INTERNAL


def test_fields_of_every_wire_type_are_passed_over():
  others = b"\x12\x03abc" + b"\x18\x96\x01" + b"\x25abcd" + b"\x29abcdefgh"  # fields 2, 3, 4, 5
  answer = others + device(others, NAME, others, INCARNATION) + others
  with strangers.grpc_server("tensorflow.WorkerService", answer) as address:
    assert worker_service.get_status(address, LIMIT) == [worker_service.Device("d", 7)]
