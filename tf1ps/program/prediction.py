"""Writes a checkpoint's predictions for all data to a file.

1. The model is built in mode "predict" and restored, in one process and without a cluster.
2. A writer takes each batch. The ending of the file chooses it:

   - .csv: a header, and a line for each example. A prediction p of shape [batch, 2] becomes the
     columns p_0 and p_1.
   - .jsonl: an object for each example.
   - .npz: an array for each prediction, for `numpy.load`. It is kept in memory until the end.

3. The file gets its name when it is complete. TensorFlow writes it, so that it may stand on any
   file system that TensorFlow knows, such as gs://.

Numbers are written with so many digits that a reader of the prediction's type gets the same number.
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

from tf1ps.compat import Error, temporary_path
from tf1ps.pipeline import BadRecords
from tf1ps.program import contract, trained_model, variable_kind


class Prediction(NamedTuple):
  """The result of a prediction."""

  examples: int  # the number of examples
  names: tuple  # the names of the predictions
  checkpoint: str  # the checkpoint that was used
  seconds: float  # from the start of the graph's construction to the complete file


class PredictionError(Error, RuntimeError):
  """Predictions cannot be written."""


def predict(program: contract.Program, checkpoint_dir: str, output: str, batch_size: int,
            variables: str = variable_kind.RESOURCE, checkpoint: Optional[str] = None,
            config: Optional[tf.ConfigProto] = None,
            bad: Optional[BadRecords] = None) -> Prediction:
  """Writes a checkpoint's predictions.

  Args:
    program: the program; its functions are called with mode "predict", model_fn without labels.
    checkpoint_dir: the directory of the checkpoint. The latest one that can be read is used.
    output: the file to write, which ends in .csv, .jsonl or .npz: a path or a URL. An existing file
      is replaced.
    batch_size: examples in a batch.
    variables: the kind of the variables, "resource" or "ref". A checkpoint fits both.
    checkpoint: the checkpoint to use instead of the latest: its path without the endings of its
      files.
    config: the session's config.
    bad: the policy for bad records. By default a bad record is an error. A skipped record has no
      prediction.

  Returns:
    The number of examples, the names, the checkpoint and the time.

  Raises:
    CheckpointError: there is no checkpoint, or it does not fit the model or cannot be read.
    PredictionError: the file has another ending or cannot be written, there are no examples, or
      the predictions do not fit the kind of file.
    ProgramError, ModelSpecError: the result of a function of the program is not usable.
  """
  began = time.monotonic()
  ending = os.path.splitext(output)[1]
  if ending not in _WRITERS:
    raise PredictionError(f"output must end in {', '.join(_WRITERS)}, got {output!r}")
  _check_place(output)
  temporary = temporary_path(output)

  def write(path):
    names, examples = _write(program, path, temporary, ending, batch_size, variables, config, bad)
    return names, examples, path

  try:
    names, examples, used = trained_model.use_newest(checkpoint_dir, checkpoint, write)
    if not examples:
      raise PredictionError(
        "there is nothing to predict: input_fn gave no example in mode 'predict'")
    tf.gfile.Rename(temporary, output, overwrite=True)
  finally:
    if tf.gfile.Exists(temporary):
      tf.gfile.Remove(temporary)
  return Prediction(examples, names, used, time.monotonic() - began)


def _write(program, checkpoint, temporary, ending, batch_size, variables, config, bad):
  """Writes the predictions of a checkpoint; returns their names and the number of examples."""
  trained = trained_model.build(program, "predict", batch_size, variables, bad)
  predictions = contract.predictions_by_name(trained.spec)
  examples = 0
  with trained_model.session(trained.graph, checkpoint, config) as session:
    with _WRITERS[ending](temporary) as writer:
      fetches = (trained.batch_size, predictions)
      for size, values in trained_model.batches(session, trained, fetches):
        _check_batch(values, int(size))
        writer.write(values)
        examples += int(size)
  return tuple(predictions), examples


def _check_place(output: str) -> None:
  """Raises PredictionError if no file of this name can be written."""
  folder = os.path.dirname(os.path.abspath(output))
  if "://" not in output and not os.path.isdir(folder):  # a store of objects has no folders
    raise PredictionError(f"output {output!r}: there is no folder {folder}")
  try:
    is_folder = tf.gfile.Exists(output) and tf.gfile.IsDirectory(output)
  except tf.errors.OpError as error:
    raise PredictionError(f"output {output!r} cannot be written: {error.message}") from error
  if is_folder:
    raise PredictionError(f"output {output!r} is a directory: give the name of a file")


class _LineWriter:
  """Writes a line for each example."""

  def __init__(self, path: str):
    self._file = tf.gfile.GFile(path, "w")

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._file.close()


class _CsvWriter(_LineWriter):
  """Writes one example per line and one number per column."""

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
  """Writes one object per line. NaN and infinities are written as Python's json reads them."""

  def write(self, values: Dict[str, np.ndarray]) -> None:
    for row in zip(*values.values()):
      example = {name: _plain(value) for name, value in zip(values, row)}
      self._file.write(json.dumps(example) + "\n")


class _Sink:
  """A file for zipfile, which otherwise seeks in the file, what a store of objects cannot do."""

  def __init__(self, file: tf.gfile.GFile):
    self._file = file
    self.flush = file.flush

  def write(self, data) -> int:
    data = bytes(data)
    self._file.write(data)
    return len(data)


class _NpzWriter:
  """Collects arrays and writes them at the end."""

  def __init__(self, path: str):
    self._path = path
    self._batches = []

  def __enter__(self):
    return self

  def write(self, values: Dict[str, np.ndarray]) -> None:
    self._batches.append(values)

  def __exit__(self, kind, *error):
    if kind is not None:
      return
    arrays = {}
    for name in self._batches[0] if self._batches else ():
      parts = [batch[name] for batch in self._batches]
      if len({part.shape[1:] for part in parts}) > 1:
        raise PredictionError(f"the shape of prediction {name!r} changes between batches, which "
                              "one array cannot hold: write .jsonl")
      arrays[name] = np.concatenate(parts)
      if arrays[name].dtype == object:  # strings: TensorFlow returns bytes of any length
        arrays[name] = arrays[name].astype(np.bytes_)
    with tf.gfile.GFile(self._path, "wb") as stream, zipfile.ZipFile(_Sink(stream), "w") as archive:
      for name, array in arrays.items():
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
    return str(value)  # the shortest text of the number; its repr names the type too
  try:
    return value.decode("utf-8")
  except UnicodeDecodeError as error:
    raise PredictionError(f"the string {value!r} is not UTF-8: write .npz") from error


def _plain(value):
  """Returns a NumPy value as a number, a string or a list."""
  if isinstance(value, np.ndarray) and value.ndim:
    return [_plain(each) for each in value]
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  if isinstance(value, (int, np.integer)):
    return int(value)
  return _text(value) if isinstance(value, bytes) else float(_text(value))
