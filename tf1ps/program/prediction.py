"""Writes a checkpoint's predictions for all data to a file.

1. The model is built in mode "predict" and restored, in one process and without a cluster.
2. A writer takes each batch. The ending of the file chooses it:

   - .csv: a header, and a line for each example. A prediction p of shape [batch, 2] becomes the
     columns p_0 and p_1.
   - .jsonl: an object for each example.
   - .npz: an array for each prediction, for `numpy.load`. It is kept in memory until the end.

3. The file gets its name when it is complete. TensorFlow writes the file, so it may lie on any file
   system that TensorFlow knows, such as gs://.

A number has so many digits that a reader with the prediction's type gets the same number.
"""

from __future__ import annotations

import csv
import json
import os
import time
import zipfile
from typing import Dict, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import temporary_path
from tf1ps.pipeline import BadRecords
from tf1ps.program import contract, trained_model
from tf1ps.program import new_data as new_data_lib
from tf1ps.program.arguments import PredictionError, check_output


class Prediction(NamedTuple):
  """The result of a prediction."""

  examples: int  # the number of examples
  names: tuple  # the names of the predictions
  checkpoint: str  # the checkpoint that was used
  seconds: float  # from the start of the graph's construction to the complete file
  # Without a file, the predictions: name to array of shape [examples, ...]; strings are bytes.
  values: Optional[Dict[str, np.ndarray]] = None


def predict_examples(
  program: contract.Program, checkpoint_dir: str, output: Optional[str], batch_size: int,
  checkpoint: Optional[str] = None, config: Optional[tf.ConfigProto] = None,
  bad: Optional[BadRecords] = None, new_data: Optional[str] = None,
) -> Prediction:
  """Makes a checkpoint's predictions, in the order of the examples; see `calls.predict`.

  Args:
    program, checkpoint_dir, output, batch_size, checkpoint: as for `calls.predict`. `output` may be
      a URL; an existing file is replaced.
    config: the session's config.
    bad: the policy for bad records. A skipped record has no prediction.
    new_data: the argument `input` of `calls.predict` (new_data.py).
  """
  began = time.monotonic()
  ending, values = "", _Arrays()
  if output is not None:
    check_output(output)
    _check_place(output)
    ending = os.path.splitext(output)[1]
  if new_data is not None:
    program = new_data_lib.with_new_data(program, new_data)
  temporary = "" if output is None else temporary_path(output)

  def write(path):
    values.batches.clear()  # predictions of a damaged checkpoint
    names, examples = _write(program, path, lambda: (
      _WRITERS[ending](temporary) if temporary else values), batch_size, config, bad)
    return names, examples, path

  try:
    names, examples, used = trained_model.use_newest(checkpoint_dir, checkpoint, write)
    if not examples:
      raise PredictionError(
        "there is nothing to predict: input_fn gave no example in mode 'predict'")
    if temporary:
      tf.gfile.Rename(temporary, output, overwrite=True)
  finally:
    if temporary and tf.gfile.Exists(temporary):
      tf.gfile.Remove(temporary)
  return Prediction(examples, names, used, time.monotonic() - began,
                    None if temporary else values.joined())


def _write(program, checkpoint, make_writer, batch_size, config, bad):
  """Writes the predictions of a checkpoint; returns their names and the number of examples."""
  trained = trained_model.build(program, "predict", batch_size, bad)
  predictions = contract.predictions_by_name(trained.spec)
  examples = 0
  with trained_model.session(trained.graph, checkpoint, config) as session:
    with make_writer() as writer:
      fetches = (trained.batch_size, predictions)
      for size, values in trained_model.batches(session, trained, fetches):
        _check_batch(values, int(size))
        writer.write(values)
        examples += int(size)
  return tuple(predictions), examples


def _check_place(output: str) -> None:
  """Raises PredictionError if no file of this name can be written."""
  try:
    is_folder = tf.gfile.Exists(output) and tf.gfile.IsDirectory(output)
  except tf.errors.OpError as error:
    raise PredictionError(f"output {output!r} cannot be written: {error.message}") from error
  if is_folder:
    raise PredictionError(f"output {output!r} is a directory: give the name of a file")


class _LineWriter:
  def __init__(self, path: str):
    self._file = tf.gfile.GFile(path, "w")

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._file.close()


class _CsvWriter(_LineWriter):
  """Writes an example per line and a number per column."""

  def __init__(self, path: str):
    super().__init__(path)
    self._writer = csv.writer(self._file, lineterminator="\n")
    self._columns = None

  def write(self, values: Dict[str, np.ndarray]) -> None:
    columns = []
    for name, array in values.items():
      columns += [name + "".join(f"_{place}" for place in index)
                  for index in np.ndindex(array.shape[1:])]
    if self._columns is None:
      if len(set(columns)) < len(columns):
        raise PredictionError(f"two columns would have the same name among {', '.join(columns)}")
      self._writer.writerow(columns)
      self._columns = columns
    elif columns != self._columns:
      raise PredictionError("the shape of a prediction changes between batches, but a .csv file "
                            "has the same columns in every line. Write .jsonl instead.")
    flat = [array.reshape(len(array), -1) for array in values.values()]
    for row in zip(*flat):
      self._writer.writerow([_text(value) for array in row for value in array])


class _JsonWriter(_LineWriter):
  """Writes an object per line. NaN and infinities are written as Python's json reads them."""

  def write(self, values: Dict[str, np.ndarray]) -> None:
    for row in zip(*values.values()):
      example = {name: _plain(value) for name, value in zip(values, row)}
      self._file.write(json.dumps(example) + "\n")


class _Sink:
  """A file for zipfile that cannot seek, because a file in an object store cannot seek."""

  def __init__(self, file: tf.gfile.GFile):
    self._file = file
    self.flush = file.flush

  def write(self, data) -> int:
    data = bytes(data)
    self._file.write(data)
    return len(data)


class _Arrays:
  def __init__(self):
    self.batches = []
    self.write = self.batches.append

  def __enter__(self):
    return self

  def __exit__(self, *error):
    pass

  def joined(self) -> Dict[str, np.ndarray]:
    arrays = {}
    for name in self.batches[0] if self.batches else ():
      parts = [batch[name] for batch in self.batches]
      if len({part.shape[1:] for part in parts}) > 1:
        raise PredictionError(f"the shape of prediction {name!r} changes between batches, which "
                              "one array cannot hold: write .jsonl")
      arrays[name] = np.concatenate(parts)
    return arrays


class _NpzWriter(_Arrays):
  """Collects arrays and writes them at the end."""

  def __init__(self, path: str):
    super().__init__()
    self._path = path

  def __exit__(self, kind, *error):
    if kind is not None:
      return
    arrays = self.joined()
    with tf.gfile.GFile(self._path, "wb") as stream, zipfile.ZipFile(_Sink(stream), "w") as archive:
      for name, array in arrays.items():
        if array.dtype == object:  # strings: TensorFlow returns bytes of any length
          array = array.astype(np.bytes_)
        with archive.open(name + ".npy", "w", force_zip64=True) as file:
          np.lib.format.write_array(file, array, allow_pickle=False)


_WRITERS = {".csv": _CsvWriter, ".jsonl": _JsonWriter, ".npz": _NpzWriter}


def _check_batch(values: Dict[str, np.ndarray], size: int) -> None:
  for name, array in values.items():
    if array.shape[:1] != (size,):
      raise PredictionError(f"prediction {name!r} has shape {array.shape} for a batch of {size}: "
                            "its first dimension must be the batch's")


def _text(value) -> str:
  """Returns a number or a string as text."""
  if not isinstance(value, bytes):
    return str(value)  # the shortest text of the number; `repr` would also name the type
  try:
    return value.decode("utf-8")
  except UnicodeDecodeError as error:
    raise PredictionError(f"the string {value!r} is not UTF-8: write .npz") from error


def _plain(value):
  """Returns a NumPy value as a number, a string or a list."""
  if isinstance(value, np.ndarray) and value.ndim:
    return [_plain(element) for element in value]
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  if isinstance(value, (int, np.integer)):
    return int(value)
  return _text(value) if isinstance(value, bytes) else float(_text(value))
