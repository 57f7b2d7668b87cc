"""A headless Chromium for tests, driven by its DevTools protocol.

It reaches no network: a page must come with all that it loads.
"""
from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import urllib.request

from tests import harness, needs

ROOT = pathlib.Path(__file__).resolve().parents[1]
_ARGUMENTS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--disable-3d-apis",  # TensorBoard then draws its charts as SVG, whose lines a test can see
  "--proxy-server=127.0.0.1:1", "--proxy-bypass-list=127.0.0.1", "--remote-debugging-port=0"]
# All texts of a page, also those inside of its components.
_TEXT = """(function all(node) {
  let text = '';
  for (const one of node.childNodes) {
    if (one.nodeType == 3) text += one.textContent + ' ';
    if (['STYLE', 'SCRIPT', 'TEMPLATE', 'NOSCRIPT'].includes(one.tagName)) continue;
    if (one.shadowRoot) text += all(one.shadowRoot);
    text += all(one);
  }
  return text;
})(document.body || document)"""
_CLICK = """(function click(node, wanted, text) {
  for (const one of node.querySelectorAll('*')) {
    if (one.matches(wanted) && one.textContent.trim() == text) {
      one.click();
      return true;
    }
    if (one.shadowRoot && click(one.shadowRoot, wanted, text)) return true;
  }
  return false;
})(document, %s, %s)"""


class Page(object):
  """The one page of a browser."""

  def __init__(self, url):
    import websocket

    self._socket = websocket.create_connection(url, timeout=harness.LIMIT, suppress_origin=True)
    self._calls = 0

  def call(self, method, **params):
    """Calls a method of the DevTools protocol; returns its result."""
    self._calls += 1
    self._socket.send(json.dumps(dict(id=self._calls, method=method, params=params)))
    while True:
      answer = json.loads(self._socket.recv())
      if answer.get("id") == self._calls:
        assert "error" not in answer, answer
        return answer["result"]

  def run(self, script):
    """Evaluates JavaScript; returns its value."""
    found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
    assert "exceptionDetails" not in found, found
    return found["result"].get("value")

  def open(self, url):
    self.call("Page.navigate", url="about:blank")  # a change behind # alone would load nothing
    self.call("Page.navigate", url=url)

  @property
  def text(self):
    return self.run(_TEXT)

  def click(self, selector, text):
    """Clicks the first element of a CSS selector with this text; returns whether there is one."""
    return self.run(_CLICK % (json.dumps(selector), json.dumps(text)))

  def save(self, path):
    """Saves a picture of the page as PNG."""
    picture = self.call("Page.captureScreenshot", format="png")["data"]
    with open(str(path), "wb") as file:
      file.write(base64.b64decode(picture))

  def close(self):
    self._socket.close()


@contextlib.contextmanager
def page(width=1600, height=1200):
  """Gives the page of a new browser, which ends with the block; skips without a Chromium."""
  program = shutil.which("chromium") or shutil.which("chromium-browser")
  if program is None:
    needs.skip("Chromium")
  folder = tempfile.mkdtemp(prefix="tf1ps-chromium-")
  process = subprocess.Popen(
    [program, *_ARGUMENTS, "--user-data-dir=" + folder, "--window-size=%d,%d" % (width, height),
     "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, universal_newlines=True)
  try:
    ports = (re.search(r"ws://127\.0\.0\.1:(\d+)/", line) for line in process.stderr)
    port = next((found.group(1) for found in ports if found), None)
    assert port is not None, "Chromium has ended with %s" % process.wait()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open("http://127.0.0.1:%s/json" % port, timeout=harness.LIMIT) as answer:
      url = next(one["webSocketDebuggerUrl"] for one in json.load(answer) if one["type"] == "page")
    opened = Page(url)
    try:
      yield opened
    finally:
      opened.close()
  finally:
    process.terminate()
    process.wait()
    process.stderr.close()
    shutil.rmtree(folder, ignore_errors=True)
