"""Damages the files of checkpoints, for the tests of rooms that read them."""
from __future__ import annotations

import os

from tf1ps.checkpoint import checkpoints

PART = ".data-00000-of-00001"


def cut(size):
  def change(path):
    with open(path, "rb") as file:
      content = file.read()
    with open(path, "wb") as file:
      file.write(content[:size])
  return change


def flip(place):
  def change(path):
    with open(path, "rb") as file:
      content = bytearray(file.read())
    content[place % len(content)] ^= 4
    with open(path, "wb") as file:
      file.write(content)
  return change


def latest_intact(directory):
  """The path of the latest checkpoint whose every tensor can be read."""
  def read(prefix):
    checkpoints.verify_checkpoint(prefix)
    return prefix
  return checkpoints.use_latest(str(directory), read)


# The file's ending, the damage, and the error about "model.ckpt-3".
DAMAGES = [
  (PART, cut(10), r"is damaged in .*model\.ckpt-3.data-00000-of-00001 \(tensor '.+'\): "),
  (PART, flip(100), r"is damaged in .*model\.ckpt-3.data-00000-of-00001 \(tensor '.+'\): "),
  (".index", cut(40), r"is damaged in .*model\.ckpt-3\.index: "),
  (".index", flip(30), r"is damaged in .*model\.ckpt-3\.index: "),
  (".index", cut(0), r"is damaged in .*model\.ckpt-3\.index: "),
  (PART, os.remove, r"is not complete: .*model\.ckpt-3\.data-\* is missing"),
  (".index", os.remove, r"is not complete: .*model\.ckpt-3\.index is missing")]
