"""Calls to a TensorFlow server's worker service, without a session.

A session waits for every task that it may see, without a limit. The worker service behind the
same port answers a plain gRPC call within milliseconds, and the call carries its own deadline:

1. `GetStatus` returns the server's devices: their names contain the task, and their incarnation
   changes when the server is restarted.
2. `CleanupAll` clears containers on this server alone. It ends no session and needs no other task.
3. `RegisterGraph` refuses a graph for a newer TensorFlow, and its error names the server's version.
   No call of a server returns the version.

TensorFlow's public API has none of them, and its packages carry no Python messages for them. So the
messages are described here, with only the fields that matter; protobuf skips the others. Service,
messages and field numbers stand in worker_service.proto and worker.proto in
tensorflow/core/protobuf, and in device_attributes.proto, graph.proto and versions.proto in
tensorflow/core/framework. They are the same in 1.15 and in 2.21, and worker_service_test.py fails
when they change.
"""

from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Sequence

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from tf1ps.compat.error_texts import Error
from tf1ps.compat.link_proxy import LINK_PROXY

_SERVICE = "/tensorflow.WorkerService/"
# With a pool of its own, each connection is new, which shows the present state of the server.
_NEW_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
_LARGEST_VERSION = 2 ** 31 - 1  # of a graph; no TensorFlow has it
_VERSION_IN_ERROR = re.compile(r"TensorFlow (\d[\w.+-]*?)\.?(\s|$)")


def _make_messages():
  """Returns the classes GetStatusResponse, CleanupAllRequest and RegisterGraphRequest."""
  field = descriptor_pb2.FieldDescriptorProto
  file = descriptor_pb2.FileDescriptorProto(name="tf1ps/worker_service.proto", package="tf1ps")

  def add(name, *fields):
    added = file.message_type.add(name=name)
    for field_name, number, kind, label, type_name in fields:
      added.field.add(name=field_name, number=number, type=kind, label=label, type_name=type_name)

  # Bytes and not strings: how protobuf treats a string that is not UTF-8 depends on its version.
  add("DeviceAttributes",
      ("name", 1, field.TYPE_BYTES, field.LABEL_OPTIONAL, None),
      ("incarnation", 6, field.TYPE_FIXED64, field.LABEL_OPTIONAL, None))
  add("GetStatusResponse",
      ("device", 1, field.TYPE_MESSAGE, field.LABEL_REPEATED, ".tf1ps.DeviceAttributes"))
  add("CleanupAllRequest", ("container", 1, field.TYPE_BYTES, field.LABEL_REPEATED, None))
  add("VersionDef", ("min_consumer", 2, field.TYPE_INT32, field.LABEL_OPTIONAL, None))
  add("GraphDef", ("versions", 4, field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".tf1ps.VersionDef"))
  add("RegisterGraphRequest",
      ("graph_def", 2, field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".tf1ps.GraphDef"))
  pool = descriptor_pool.DescriptorPool()
  pool.AddSerializedFile(file.SerializeToString())
  # protobuf 4.22 has GetMessageClass in the place of a factory's GetPrototype.
  make = getattr(message_factory, "GetMessageClass", None)
  make = make or message_factory.MessageFactory(pool).GetPrototype
  return [make(pool.FindMessageTypeByName("tf1ps." + name))
          for name in ("GetStatusResponse", "CleanupAllRequest", "RegisterGraphRequest")]


_GetStatusResponse, _CleanupAllRequest, _RegisterGraphRequest = _make_messages()


class Device(NamedTuple):
  """A device of a server."""

  name: str  # "/job:ps/replica:0/task:0/device:CPU:0"
  incarnation: int  # random; it changes when the server is restarted


class CallError(Error):
  """A call without a usable answer.

  Attributes:
    code: the gRPC status code, a `grpc.StatusCode`.
    details: gRPC's text.
  """

  def __init__(self, code, details: str):
    super().__init__("%s: %s" % (code.name, details))
    self.code, self.details = code, details


def get_status(address: str, timeout: float) -> List[Device]:
  """Asks the server at an address for its devices; returns the devices of the server's own task.

  Args:
    address: "host:port".
    timeout: seconds until the call is given up.

  Raises:
    CallError: there was no answer, or not the answer of a TensorFlow server.
  """
  reply = _call(address, "GetStatus", b"", timeout)
  try:
    devices = [_device(device) for device in _GetStatusResponse.FromString(reply).device]
    if reply and not devices:
      raise ValueError("no device in the answer")
    return devices
  except (message.DecodeError, ValueError) as error:
    raise CallError(
      grpc.StatusCode.INTERNAL, "an answer in another format than TensorFlow's") from error


def cleanup_all(address: str, containers: Sequence[str], timeout: float) -> None:
  """Clears containers on a server; sessions and other containers stay.

  Args:
    address: "host:port".
    containers: names of the containers; the default container has the name of the server's job.
    timeout: seconds until the call is given up.

  Raises:
    ValueError: no names, with which the server would clear all of its default state.
    CallError: there was no answer.
  """
  if isinstance(containers, str) or not containers or not all(containers):
    raise ValueError(
      "containers must be a list of at least one name, and no name may be empty, got %r" % (
        containers,))
  request = _CleanupAllRequest(container=[name.encode("utf-8") for name in containers])
  _call(address, "CleanupAll", request.SerializeToString(), timeout)


def get_version(address: str, timeout: float) -> str:
  """Returns the version of the TensorFlow that serves an address, such as "2.21.0".

  Args:
    address: "host:port".
    timeout: seconds until the call is given up.

  Raises:
    CallError: there was no answer, or the answer names no version.
  """
  request = _RegisterGraphRequest()
  request.graph_def.versions.min_consumer = _LARGEST_VERSION
  try:
    _call(address, "RegisterGraph", request.SerializeToString(), timeout)
  except CallError as error:
    version = _VERSION_IN_ERROR.search(error.details)
    if version is None:
      raise
    return version.group(1)
  raise CallError(grpc.StatusCode.OK, "the server took a graph for a newer TensorFlow")


def _call(address: str, method: str, request: bytes, timeout: float) -> bytes:
  proxy = os.environ.get(LINK_PROXY)
  # No proxy belongs between the tasks of a cluster, but that of their links.
  channel = grpc.insecure_channel(address, options=[
    _NEW_CONNECTION, ("grpc.http_proxy", proxy) if proxy else ("grpc.enable_http_proxy", 0)])
  try:
    return channel.unary_unary(_SERVICE + method)(request, timeout=timeout)
  except grpc.RpcError as error:
    raise CallError(error.code(), error.details() or "") from None
  finally:
    channel.close()


def _device(attributes) -> Device:
  if not (attributes.HasField("name") and attributes.HasField("incarnation")):
    raise ValueError("a device without a name or an incarnation")
  return Device(attributes.name.decode("utf-8"), attributes.incarnation)
