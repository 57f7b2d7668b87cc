"""Compares what could carry bytes between two tasks over mutual TLS: round trips of one connection.

    python -m benchmarks.sidecars [--rounds=5] [--seconds=1]

The kinds take turns: no TLS at all; the sidecars of --tls_dir; a pair of asyncio relays, with
uvloop if it is installed; a pair of haproxy and a pair of stunnel, if they are installed. The
relays and the proxies have a static target, so that they need no CONNECT and no namespace: in a job
each of them would need another hop. A round trip sends a number of bytes and gets the same number
back.
"""
from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from tf1ps import links
from tf1ps.compat import LINK_PROXY
from tf1ps.launch import find_free_ports

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = (200, 40000, 1000000, 8000000)  # bytes, each way
_HOST = "127.0.0.1"
_HAPROXY = """
global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen one
  bind 127.0.0.1:{listen}{inward}
  server two 127.0.0.1:{target}{outward}
"""
_STUNNEL = """
foreground = yes
pid =
debug = 3
[one]
client = {is_client}
accept = 127.0.0.1:{listen}
connect = 127.0.0.1:{target}
cert = {folder}/cert.pem
key = {folder}/key.pem
CAfile = {folder}/ca.pem
verifyChain = yes
"""


def _echo(server):
  """Echoes the data of each connection, in messages whose size is in the first 8 bytes."""
  while True:
    connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection):
  room = memoryview(bytearray(max(SIZES)))
  while True:
    size = int.from_bytes(_read(connection, room[:8]), "big")
    connection.sendall(_read(connection, room[:size]))


def _read(connection, room):
  done = 0
  while done < len(room):
    count = connection.recv_into(room[done:])
    if not count:
      sys.exit()
    done += count
  return room


def serve(port, folder=""):
  """Runs the echoing process; if a folder is given, the process is behind links."""
  if folder:
    links.enter(folder)
  with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((_HOST, port))
    server.listen(5)
    if folder:
      links.listen(_HOST, port)
    print("up", flush=True)
    _echo(server)


def measure(port, folder=""):
  """Runs the calling process, which prints the median in us for each line "SIZE SECONDS"."""
  if folder:
    links.enter(folder)
    connection = socket.create_connection((_HOST, int(os.environ[LINK_PROXY].split(":")[-1])))
    connection.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % port)
    assert b" 200 " in connection.recv(200)
  else:
    connection = socket.create_connection((_HOST, port))
  connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
  print("up", flush=True)
  for line in sys.stdin:
    size, limit = line.split()
    message, room = bytes(int(size)), memoryview(bytearray(int(size)))
    took, until = [], time.perf_counter() + float(limit)
    while time.perf_counter() < until or len(took) < 5:
      began = time.perf_counter()
      connection.sendall(len(message).to_bytes(8, "big") + message)
      _read(connection, room)
      took.append(time.perf_counter() - began)
    print(1e6 * statistics.median(took), flush=True)


def relay(listen, target, folder, is_client):
  """Runs an asyncio relay; the client side connects by TLS, and the other side listens by TLS."""
  try:
    import uvloop

    uvloop.install()
  except ImportError:
    pass
  client, server = links.Identity(folder).contexts()

  async def copy(reader, writer):
    while True:
      data = await reader.read(1 << 18)
      if not data:
        break
      writer.write(data)
      await writer.drain()
    writer.close()

  async def accept(reader, writer):
    there = await asyncio.open_connection(
      _HOST, target, limit=1 << 18, ssl=client if is_client else None)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

  async def run():
    made = await asyncio.start_server(accept, _HOST, listen, limit=1 << 18,
                                      ssl=None if is_client else server)
    print("up", flush=True)
    await made.serve_forever()

  asyncio.run(run())


class Kind:
  """The processes of one kind."""

  def __init__(self, name, folder):
    self.name, self._folder, self._processes = name, folder, []
    self._first, self._second, self._port = find_free_ports(3)
    linked = name == "sidecars"
    try:
      self._start("serve", self._port, folder if linked else "")
      if name not in ("plain", "sidecars"):
        self._carry()
      port = self._port if name in ("plain", "sidecars") else self._first
      self._caller = self._start("measure", port, folder if linked else "")
    except BaseException:
      self.end()
      raise

  def _start(self, function, *args):
    process = subprocess.Popen(
      [sys.executable, "-c", "from benchmarks import sidecars; sidecars.%s(*%r)" % (
        function, args)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
      universal_newlines=True)
    self._processes.append(process)
    if process.stdout.readline() != "up\n":
      raise RuntimeError("%s did not start" % self.name)
    return process

  def _carry(self):
    for listen, target, is_client in ((self._second, self._port, False),
                                      (self._first, self._second, True)):
      if self.name == "asyncio":
        self._start("relay", listen, target, self._folder, is_client)
        continue
      path = os.path.join(self._folder, "%s-%d.cfg" % (self.name, listen))
      with open(path, "w") as file:
        file.write(self._config(listen, target, is_client))
      command = {"haproxy": ["haproxy", "-f"], "stunnel": ["stunnel"]}[self.name]
      self._processes.append(subprocess.Popen(
        [*command, path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
      until = time.monotonic() + 20
      while True:
        try:
          socket.create_connection((_HOST, listen)).close()
          break
        except OSError:
          if time.monotonic() > until or self._processes[-1].poll() is not None:
            raise RuntimeError("%s did not start" % self.name) from None
          time.sleep(0.05)

  def _config(self, listen, target, is_client):
    if self.name == "stunnel":
      return _STUNNEL.format(is_client="yes" if is_client else "no", listen=listen, target=target,
                             folder=self._folder)
    both = os.path.join(self._folder, "both.pem")
    with open(both, "w") as file:
      for name in ("cert.pem", "key.pem"):
        with open(os.path.join(self._folder, name)) as part:
          file.write(part.read())
    tls = " ssl crt %s ca-file %s/ca.pem verify required" % (both, self._folder)
    return _HAPROXY.format(listen=listen, target=target, inward="" if is_client else tls,
                           outward=tls if is_client else "")

  def measure(self, size, seconds):
    """Returns the median time of the round trips, in us."""
    self._caller.stdin.write("%d %g\n" % (size, seconds))
    self._caller.stdin.flush()
    return float(self._caller.stdout.readline())

  def end(self):
    """Ends the processes."""
    for process in self._processes:
      process.send_signal(signal.SIGKILL)
      process.wait()


def main():
  """Prints a table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--seconds", type=float, default=1.0)
  args = parser.parse_args()
  names = ["plain", "sidecars", "asyncio"] + [
    name for name in ("haproxy", "stunnel") if shutil.which(name)]
  with tempfile.TemporaryDirectory(prefix="tf1ps-sidecars-") as folder:
    made, = links.make_certificates(folder, [[_HOST]], 1)
    kinds = []
    try:
      for name in names:
        kinds.append(Kind(name, made))
      found = {}
      for _ in range(args.rounds):
        for size in SIZES:
          for kind in kinds:
            found.setdefault((kind.name, size), []).append(kind.measure(size, args.seconds))
    finally:
      for kind in kinds:
        kind.end()
  print("%s; us per round trip, median (min to max) of %d rounds" % (
    ssl.OPENSSL_VERSION, args.rounds))
  print("| bytes each way | %s |" % " | ".join(names))
  print("|---|%s" % ("---|" * len(names)))
  for size in SIZES:
    cells = [found[name, size] for name in names]
    print("| %s | %s |" % (size, " | ".join(
      "%.0f (%.0f to %.0f)" % (statistics.median(each), min(each), max(each)) for each in cells)))


if __name__ == "__main__":
  main()
