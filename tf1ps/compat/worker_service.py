"""Calls to a TensorFlow server's worker service, without a session.

A session waits for every task that it may see, without a limit. The worker service behind the
same port answers a plain gRPC call within milliseconds, and the call carries its own deadline:

1. `GetStatus` returns the server's devices: their names tell which task answers, their
   incarnation whether it is still the process that answered before.
2. `CleanupAll` clears containers on this one server. It ends no session and needs no other task.

Neither has a place in TensorFlow's public API, and TensorFlow's packages carry no Python messages
for them; so the few fields that matter are written and read here by the protocol buffers' wire
format (https://protobuf.dev/programming-guides/encoding/). The service and its field numbers stand
in tensorflow/core/protobuf/worker_service.proto, worker.proto and device_attributes.proto; they are
the same in 1.15 and in 2.21, and worker_service_test.py notices when they change.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Sequence, Tuple, Union

import grpc

from tf1ps.compat.errors import Error

_SERVICE = "/tensorflow.WorkerService/"
# A proxy for the outside world has no business between the tasks of a cluster. The global pool of
# connections is left alone: a fresh connection tells what is there now, not what was there before.
_CHANNEL_OPTIONS = [
  ("grpc.enable_http_proxy", 0),
  ("grpc.use_local_subchannel_pool", 1),
]


class Device(NamedTuple):
  """One device of a server, as it names it itself."""

  name: str  # "/job:ps/replica:0/task:0/device:CPU:0"
  incarnation: int  # random; another one after a restart of the server


class CallError(Error):
  """A call that brought no answer.

  Attributes:
    code: the gRPC status code, a `grpc.StatusCode`.
    details: gRPC's text.
  """

  def __init__(self, code, details: str):
    super().__init__("%s: %s" % (code.name, details))
    self.code = code
    self.details = details


def get_status(address: str, timeout: float) -> List[Device]:
  """Asks the server at an address for its devices.

  Args:
    address: "host:port".
    timeout: seconds until the call is given up.

  Returns:
    The devices of the server's own task.

  Raises:
    CallError: nobody answered, or somebody who is no TensorFlow server.
  """
  reply = _call(address, "GetStatus", b"", timeout)
  try:
    return [_device(value) for number, value in _fields(reply) if number == 1]
  except (AttributeError, IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
    raise CallError(
      grpc.StatusCode.INTERNAL, "an answer in another format than TensorFlow's"
    ) from error


def cleanup_all(address: str, containers: Sequence[str], timeout: float) -> None:
  """Clears containers on one server; sessions and other containers stay.

  Args:
    address: "host:port".
    containers: names of the containers; the default one bears the name of the server's job.
    timeout: seconds until the call is given up.

  Raises:
    ValueError: no names. The server would take that for all of its default state.
    CallError: the call brought no answer.
  """
  if isinstance(containers, str) or not containers or not all(containers):
    raise ValueError(
      "containers must be a list of at least one name and no empty one, got %r" % (containers,))
  request = b"".join(_string_field(1, name) for name in containers)
  _call(address, "CleanupAll", request, timeout)


def _call(address: str, method: str, request: bytes, timeout: float) -> bytes:
  channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
  try:
    return channel.unary_unary(_SERVICE + method)(request, timeout=timeout)
  except grpc.RpcError as error:
    raise CallError(error.code(), error.details() or "") from None
  finally:
    channel.close()


def _device(message: bytes) -> Device:
  values = dict(_fields(message))
  return Device(values[1].decode("utf-8"), int.from_bytes(values[6], "little"))


def _string_field(number: int, text: str) -> bytes:
  data = text.encode("utf-8")
  return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
  out = bytearray()
  while value > 127:
    out.append(value & 127 | 128)
    value >>= 7
  out.append(value)
  return bytes(out)


def _fields(message: bytes) -> Iterator[Tuple[int, Union[int, bytes]]]:
  position = 0
  while position < len(message):
    key, position = _read_varint(message, position)
    number, wire_type = key >> 3, key & 7
    if wire_type == 0:
      value, position = _read_varint(message, position)
    elif wire_type in (1, 2, 5):
      length = {1: 8, 5: 4}.get(wire_type)
      if length is None:
        length, position = _read_varint(message, position)
      value = message[position:position + length]
      if len(value) != length:
        raise IndexError("the message ends early")
      position += length
    else:
      raise TypeError("wire type %d" % wire_type)
    yield number, value


def _read_varint(message: bytes, position: int) -> Tuple[int, int]:
  value = shift = 0
  while True:
    byte = message[position]
    position += 1
    value |= (byte & 127) << shift
    shift += 7
    if not byte & 128:
      return value, position
