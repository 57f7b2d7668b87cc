"""Reads new data from a file, in place of the examples of a program's input_fn.

The features of input_fn in mode "predict" give the names, types and shapes of the values of an
example; a single tensor is called "features". The ending of the file says how to read it:

- .csv: the first line names the columns. A feature x of shape [2] takes the columns x_0 and x_1,
  like the columns of predictions. A single tensor takes all columns, in their order.
- .jsonl: an object for each example.
- .npz: an array for each feature, whose first dimension counts the examples.
- .tfrecord: a tf.train.Example for each example.

The file is read twice: first, before any other work, to find mistakes, and then in batches for the
model. It may lie on any file system that TensorFlow knows.
"""

from __future__ import annotations

import csv
import json
import os
import zipfile
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import generated
from tf1ps.program import contract
from tf1ps.program.arguments import NewDataError, check_ending

_CHUNK = 1024  # examples that the check reads at a time
_FRAME = 16  # bytes of a TFRecord, without its content
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_Row = Tuple[str, Dict[str, Any]]  # file and line of an example, and its values by feature


class _Feature(NamedTuple):
  name: str
  dtype: tf.DType
  shape: Tuple[Optional[int], ...]  # None: of any size, the same in all examples

  @property
  def columns(self) -> List[str]:
    """The columns of a file with a number per column."""
    return [self.name + "".join("_%d" % place for place in index)
            for index in np.ndindex(*self.shape)]

  def __str__(self):
    sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
    return "%s: %s%s" % (self.name, self.dtype.name, " [%s]" % sizes if self.shape else "")


def with_new_data(program: contract.Program, path: str) -> contract.Program:
  """Returns a program whose input in mode "predict" is a file; checks the file.

  Args:
    program: the program; its input_fn is called with mode "predict".
    path: the file, which ends in .csv, .jsonl, .npz or .tfrecord: a path or a URL.

  Raises:
    NewDataError: the file does not exist or is empty, or a value is missing, surplus, or of another
      type or shape. The text names the file and the line.
    ProgramError: the features have no names, or no shapes.
  """
  check_ending(path)
  read = _READERS[os.path.splitext(path)[1]]
  named, is_single = contract.named_features(program)
  features = [_feature(name, tensor) for name, tensor in named.items()]

  def batches(size: int) -> Iterator[Dict[str, np.ndarray]]:
    try:
      yield from read(path, features, size, is_single)
    except tf.errors.OpError as error:
      raise NewDataError(f"{path} cannot be read: {error.message}") from error

  if not sum(1 for _ in batches(_CHUNK)):
    raise NewDataError(f"{path} has no example")

  def input_fn(mode, shard):
    del mode
    data = generated(lambda: batches(shard.batch_size), {
      feature.name: tf.TensorSpec([None, *feature.shape], feature.dtype) for feature in features})
    return data.map(lambda values: values[contract.FEATURES]) if is_single else data

  return program._replace(input_fn=input_fn)


def _feature(name, tensor) -> _Feature:
  if tensor.shape.ndims is None:
    raise contract.ProgramError(
      f"the feature {name!r} has no known shape in mode 'predict': call set_shape in input_fn")
  kind = np.dtype(tensor.dtype.as_numpy_dtype).kind
  if kind not in "fiubOS":
    raise contract.ProgramError(f"the feature {name!r} is {tensor.dtype.name}: no file has that")
  return _Feature(name, tensor.dtype, tuple(tensor.shape.as_list()[1:]))


def _from_csv(path, features, size, is_single):
  """Yields batches; a row is its line's fields."""
  for feature in features:
    if None in feature.shape:
      raise NewDataError(f"{path}: the number of columns of {feature} is open: give .jsonl or .npz")

  def rows() -> Iterator[_Row]:
    reader = csv.reader(_lines(path), strict=True)
    header: Optional[List[str]] = None
    while True:
      try:
        fields = next(reader, None)
      except csv.Error as error:
        raise NewDataError(f"{path}:{reader.line_num}: {error}") from error
      if fields is None:
        return
      where = f"{path}:{reader.line_num}"
      if header is None:
        header = [name.strip() for name in fields]
        places = _places(header, features, is_single, where)
      elif fields:  # no empty line
        if len(fields) != len(header):
          raise NewDataError(f"{where}: {len(fields)} fields, but the first line names "
                             f"{len(header)} columns")
        yield where, {feature.name: np.array([
          _parse(fields[place], feature.dtype, f"{where}: the column {header[place]!r}")
          for place in places[feature.name]], object).reshape(feature.shape)
          for feature in features}

  return _batched(rows(), features, size)


def _places(header, features, is_single, where) -> Dict[str, List[int]]:
  """Returns the columns of each feature."""
  if len(set(header)) < len(header):
    twice = next(name for name in header if header.count(name) > 1)
    raise NewDataError(f"{where}: two columns are called {twice!r}")
  wanted = {feature.name: feature.columns for feature in features}
  for name, columns in wanted.items():
    if columns == [name + "_0"] and name in header:
      wanted[name] = [name]
  names = [name for columns in wanted.values() for name in columns]
  if is_single and len(header) == len(names) and not set(header) & set(names):
    return {features[0].name: list(range(len(header)))}
  _match(header, names, features, "column", where)
  return {name: [header.index(name) for name in columns] for name, columns in wanted.items()}


def _from_jsonl(path, features, size, unused_is_single):
  """Yields batches; a row is its line's object."""
  names = [feature.name for feature in features]

  def rows() -> Iterator[_Row]:
    for number, line in enumerate(_lines(path), 1):
      where = f"{path}:{number}"
      if not line.strip():
        continue
      try:
        values = json.loads(line)
      except ValueError as error:
        raise NewDataError(f"{where}: not JSON: {error}") from error
      if not isinstance(values, dict):
        raise NewDataError(f"{where}: must be an object with the features' names, got "
                           f"{line.strip()[:40]}")
      _match(values, names, features, "name", where)
      yield where, values

  return _batched(rows(), features, size)


def _from_tfrecord(path, features, size, unused_is_single):
  """Yields batches; a row is its Example's lists of values."""
  names = [feature.name for feature in features]

  def rows() -> Iterator[_Row]:
    read = 0
    for number, record in enumerate(tf.io.tf_record_iterator(path), 1):
      read += _FRAME + len(record)
      where = f"{path}: record {number}"
      try:
        lists = tf.train.Example.FromString(record).features.feature
      except Exception as error:  # protobuf's DecodeError has another place in each release
        raise NewDataError(f"{where}: not a tf.train.Example: {error}") from error
      _match(lists, names, features, "feature", where)
      yield where, {
        feature.name: _of_list(lists[feature.name], feature, where) for feature in features}
    left = tf.gfile.Stat(path).length - read
    if left:  # TensorFlow treats an incomplete last record as the end of the file
      raise NewDataError(f"{path} ends in the middle of a record, which has {left} bytes")

  return _batched(rows(), features, size)


def _of_list(value, feature, where):
  """Returns the values of a tf.train.Feature in the shape of a feature."""
  kind = value.WhichOneof("kind")
  values = list(getattr(value, kind).value) if kind else []
  if feature.dtype == tf.bool and all(number in (0, 1) for number in values):
    values = [bool(number) for number in values]
  try:
    return np.array(values, object).reshape([-1 if size is None else size
                                             for size in feature.shape])
  except ValueError as error:
    raise NewDataError(f"{where}: {feature} takes other numbers of values than "
                       f"{len(values)}") from error


def _from_npz(path, features, size, unused_is_single):
  """Yields batches; only a batch of each array is in memory."""
  try:
    with tf.gfile.GFile(path, "rb") as file, zipfile.ZipFile(file) as archive:
      names = [name[:-len(".npy")] for name in archive.namelist()]
      _match(names, [feature.name for feature in features], features, "array", path)
      arrays = [_Array(archive, path, feature) for feature in features]
      longest = max(arrays, key=lambda array: array.left)
      for array in arrays:
        if array.left != longest.left:
          raise NewDataError(f"{path}: the array {array.feature.name!r} has {array.left} examples, "
                             f"but {longest.feature.name!r} has {longest.left}")
      while longest.left:
        yield {array.feature.name: array.take(size) for array in arrays}
  except (zipfile.BadZipFile, tf.errors.InvalidArgumentError) as error:  # the latter: too short
    raise NewDataError(f"{path} is not a .npz file: {error}") from error


class _Array:
  """An array of a .npz file, which is read from its beginning to its end."""

  def __init__(self, archive: zipfile.ZipFile, path: str, feature: _Feature):
    self.feature, self._where = feature, f"{path}: the array {feature.name!r}"
    self._file = archive.open(feature.name + ".npy")
    try:
      version = np.lib.format.read_magic(self._file)
      read = getattr(np.lib.format, "read_array_header_%d_%d" % version)
      shape, by_columns, self._dtype = read(self._file)
    except (ValueError, AttributeError) as error:
      raise NewDataError(f"{self._where} cannot be read: {error}") from error
    if not shape or by_columns and len(shape) > 1 or self._dtype.hasobject:
      raise NewDataError(f"{self._where} must have a dimension of the examples, no Python objects, "
                         "and its rows in C's order (numpy.ascontiguousarray)")
    self.left, self._shape, self._row = shape[0], shape[1:], 0

  def take(self, size: int) -> np.ndarray:
    """Returns the next `size` examples, or all that are left."""
    size = min(size, self.left)
    count = size * int(np.prod(self._shape, dtype=np.int64))
    data = self._file.read(count * self._dtype.itemsize)
    if len(data) < count * self._dtype.itemsize:
      raise NewDataError(f"{self._where} ends in the middle")
    where = f"{self._where}, examples {self._row} to {self._row + size - 1}"
    self.left, self._row = self.left - size, self._row + size
    values = np.frombuffer(data, self._dtype).reshape((size, *self._shape))
    return _convert(values, self.feature, (size, *self.feature.shape), where)


_READERS: Dict[str, Callable] = {
  ".csv": _from_csv, ".jsonl": _from_jsonl, ".npz": _from_npz, ".tfrecord": _from_tfrecord}


def _lines(path: str) -> Iterator[str]:
  """Yields the lines of a text file, with their ends."""
  with tf.gfile.GFile(path, "rb") as file:
    for number, line in enumerate(file, 1):
      try:
        yield line.decode("utf-8-sig" if number == 1 else "utf-8")
      except UnicodeDecodeError as error:
        raise NewDataError(f"{path}:{number}: not UTF-8: {error}") from error


def _match(names, wanted, features, what, where) -> None:
  """Raises NewDataError unless `names` are the names of the features, `wanted`."""
  missing = [name for name in wanted if name not in names]
  surplus = [name for name in names if name not in wanted]
  if missing or surplus:
    problems = [f"the {what} {missing[0]!r} is missing"] if missing else []
    problems += [f"the {what} {surplus[0]!r} belongs to no feature"] if surplus else []
    raise NewDataError(f"{where}: {' and '.join(problems)}. The program's features are "
                       f"{', '.join(map(str, features))}")


def _batched(rows: Iterator[_Row], features: List[_Feature], size: int):
  """Yields the values of rows, `size` at a time."""
  def stacked():
    return {name: np.stack([row[name] for row in batch]) for name in batch[0]}

  batch: List[Dict[str, np.ndarray]] = []
  for where, values in rows:
    row = {feature.name: _convert(np.array(values[feature.name], object), feature, feature.shape,
                                  f"{where}: {feature.name!r}") for feature in features}
    # The first row fixes the sizes that the features leave open.
    features = [feature._replace(shape=row[feature.name].shape) for feature in features]
    batch.append(row)
    if len(batch) == size:
      yield stacked()
      batch = []
  if batch:
    yield stacked()


def _convert(values: np.ndarray, feature: _Feature, shape, where: str) -> np.ndarray:
  """Returns values in the type of a feature; raises NewDataError for another type or shape."""
  if len(values.shape) != len(shape) or any(
      size not in (None, actual) for size, actual in zip(shape, values.shape)):
    raise NewDataError(f"{where} has shape {list(values.shape)}, but the feature is {feature}")
  if feature.dtype == tf.string:
    if values.dtype.kind == "S":
      return values.astype(object)
    return np.array([_encoded(value, feature, where) for value in values.flat], object).reshape(
      values.shape)
  if values.dtype == object:
    for value in values.flat:
      _check_kind(value, feature, where)
  elif not (values.dtype == np.bool_ if feature.dtype == tf.bool else values.dtype.kind in (
      "iu" if feature.dtype.is_integer else "fiu")):
    raise NewDataError(f"{where} is {values.dtype}, but the feature is {feature}")
  if feature.dtype.is_integer:
    for value in ([values.min(), values.max()] if values.size else []):
      if not feature.dtype.min <= value <= feature.dtype.max:
        raise NewDataError(f"{where}: {value} is beyond {feature.dtype.name}")
  with np.errstate(over="ignore"):
    converted = values.astype(feature.dtype.as_numpy_dtype)
  if feature.dtype.is_floating and np.any(
      np.isinf(converted) & np.isfinite(values.astype(np.float64))):
    raise NewDataError(f"{where} has a value beyond {feature.dtype.name}")
  return converted


def _check_kind(value, feature: _Feature, where: str) -> None:
  is_number = isinstance(value, int) or isinstance(value, float) and feature.dtype.is_floating
  if not (isinstance(value, bool) if feature.dtype == tf.bool
          else is_number and not isinstance(value, bool)):
    raise NewDataError(f"{where} must be {feature.dtype.name}, got {value!r}")


def _encoded(value, feature: _Feature, where: str) -> bytes:
  if isinstance(value, bytes):
    return value
  if not isinstance(value, str):
    raise NewDataError(f"{where} must be string, got {value!r}")
  return value.encode("utf-8")


def _parse(text: str, dtype: tf.DType, where: str):
  if dtype == tf.string:
    return text
  try:
    if dtype == tf.bool:
      return _TRUTHS[text.strip().lower()]
    return int(text) if dtype.is_integer else float(text)
  except (ValueError, KeyError):
    raise NewDataError(f"{where} must be {dtype.name}, got {text!r}") from None
