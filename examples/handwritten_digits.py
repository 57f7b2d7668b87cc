"""Reads the handwritten digits, those in data/ or MNIST, for all examples that use them.

This file needs numpy only. An example in a folder below adds this folder to sys.path first.
"""
from __future__ import annotations

import functools
import gzip
import operator
import os
import struct
import zlib
from typing import Iterable, NamedTuple, Optional, Tuple

import numpy as np

CSV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.csv")
# The rows of every fifty that belong to a part. Each writer is in both parts.
PLACES = {"train": range(10, 50), "eval": range(10), "predict": range(10)}
IMAGES, LABELS = 0x803, 0x801  # the beginning of an IDX file: bytes in three dimensions, or in one


class Data(NamedTuple):
  """One part of a data set, in memory."""
  images: np.ndarray  # [rows, pixels], uint8
  labels: np.ndarray  # [rows], int32, 0 to 9
  white: int  # the largest value of a pixel


class Digits(NamedTuple):
  """The same, ready to feed."""
  images: np.ndarray  # [rows, pixels], float32, 0 to 1
  labels: np.ndarray  # [rows], int32, 0 to 9


def read(mode: str, data_dir: Optional[str] = None) -> Data:
  """Reads one part of the digits.

  Args:
    mode: "train", "eval" or "predict"; the last two have the same rows.
    data_dir: a folder with MNIST's four files, plain or .gz. None: the 8x8 digits in data/.

  Raises:
    ValueError: a file of MNIST is missing or damaged; the message names it.
  """
  return read_mnist(mode, data_dir) if data_dir else read_csv(PLACES[mode])


def read_to_feed(data_dir: Optional[str] = None) -> Tuple[Digits, Digits]:
  """Reads the digits to train with, and those to test with; see `read`."""
  return scale(read("train", data_dir)), scale(read("eval", data_dir))


def scale(data: Data) -> Digits:
  """Scales the pixels to 0 to 1."""
  return Digits(data.images.astype(np.float32) / data.white, data.labels)


def read_csv(places: Iterable[int]) -> Data:
  """Reads the 8x8 digits: of every fifty rows those at these places, 0 to 49."""
  rows = np.loadtxt(CSV, delimiter=",", dtype=np.uint8)
  part = rows[np.isin(np.arange(len(rows)) % 50, list(places))]
  return Data(part[:, :-1], part[:, -1].astype(np.int32), 16)


def read_idx(data_dir: str, name: str, magic: int) -> np.ndarray:
  """Reads the IDX file `name` or `name.gz`; a ValueError names the file and what is wrong."""
  path = os.path.join(data_dir, name)
  path = path if os.path.exists(path) else path + ".gz"
  if not os.path.exists(path):
    raise ValueError(f"--data_dir={data_dir}: neither {name} nor {name}.gz is there")
  try:
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
      content = file.read()
  except (OSError, EOFError, zlib.error) as error:
    raise ValueError(f"{path} cannot be read: {error}") from error
  dimensions = magic & 0xff
  head = 4 + 4 * dimensions  # bytes: the magic number, then the size of each dimension
  if content[:4] != struct.pack(">I", magic) or len(content) < head:
    raise ValueError(f"{path} must begin with 0x{magic:08x} and {dimensions} sizes; "
                     f"its {len(content)} bytes begin with 0x{content[:4].hex()}")
  shape = struct.unpack(f">{dimensions}I", content[4:head])
  size = functools.reduce(operator.mul, shape)
  if len(content) - head != size:
    raise ValueError(f"{path} promises {size} bytes, of shape {shape}, "
                     f"and holds {len(content) - head}")
  return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def read_mnist(mode: str, data_dir: str) -> Data:
  """Reads MNIST's training files for mode "train", its test files for the others."""
  part = "train" if mode == "train" else "t10k"
  images = read_idx(data_dir, part + "-images-idx3-ubyte", IMAGES)
  labels = read_idx(data_dir, part + "-labels-idx1-ubyte", LABELS)
  if len(images) != len(labels):
    raise ValueError(f"--data_dir={data_dir}: {len(images)} images, {len(labels)} labels in {part}")
  return Data(images.reshape(len(images), -1), labels.astype(np.int32), 255)
