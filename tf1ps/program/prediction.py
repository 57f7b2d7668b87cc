"""Prediction: a checkpoint's predictions for all of the data, written to a file.

1. The model is built in mode "predict" and restored, in one process and without a cluster.
2. Each batch goes to a writer, chosen by the file's ending:
   - .csv: a header and a line for each example; a prediction of shape [batch, 2] called p becomes
     the columns p_0 and p_1;
   - .jsonl: an object for each example;
   - .npz: an array for each prediction, as `numpy.load` reads it. It is held in memory until then.
3. The file gets its name when it is complete.

Numbers are written with as many digits as bring back the same number when they are read as the
prediction's type.
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

from tf1ps.compat import Error
from tf1ps.pipeline import BadRecords
from tf1ps.program import model, trained_model, variable_kind
from tf1ps.program.loader import Program


class Prediction(NamedTuple):
  """What was written."""

  examples: int  # lines, or the first dimension of the arrays
  names: tuple  # the names of the predictions
  checkpoint: str  # the checkpoint that was used
  seconds: float  # from building the graph to the complete file


class PredictionError(Error, RuntimeError):
  """The predictions cannot be written."""


def predict(program: Program, checkpoint_dir: str, output: str, batch_size: int,
            variables: str = variable_kind.RESOURCE, checkpoint: Optional[str] = None,
            config: Optional[tf.ConfigProto] = None,
            bad: Optional[BadRecords] = None) -> Prediction:
  """Writes a checkpoint's predictions.

  Args:
    program: the program; its functions are called with mode "predict", model_fn without labels.
    checkpoint_dir: its latest checkpoint is used.
    output: the file to write; ends in .csv, .jsonl or .npz. One that is there is replaced.
    batch_size: examples in a batch.
    variables: their kind, "resource" or "ref"; a checkpoint fits both.
    checkpoint: use this one instead: its path without the endings of its files.
    config: of the session.
    bad: the policy for bad records; None: they fail. Who is skipped has no prediction.

  Raises:
    CheckpointError: there is no checkpoint, or it does not fit the model or cannot be read.
    PredictionError: another ending, no folder for the file, no examples, or predictions that do not
      fit the kind of file.
    ProgramError, ModelSpecError: the program's functions returned something unusable.
  """
  began = time.monotonic()
  ending = os.path.splitext(output)[1]
  if ending not in _WRITERS:
    raise PredictionError(f"output must end in {', '.join(_WRITERS)}, got {output!r}")
  folder = os.path.dirname(os.path.abspath(output))
  if not os.path.isdir(folder):
    raise PredictionError(f"output {output!r}: there is no folder {folder}")
  checkpoint = trained_model.newest(checkpoint_dir, checkpoint)
  trained = trained_model.build(program, "predict", batch_size, variables, bad)
  predictions = model.predictions_by_name(trained.spec)
  temporary = f"{output}.{os.getpid()}.tmp"
  examples = 0
  try:
    with trained_model.session(trained.graph, checkpoint, config) as session:
      with _WRITERS[ending](temporary) as writer:
        fetches = (trained.batch_size, predictions)
        for size, values in trained_model.batches(session, trained, fetches):
          _check_batch(values, int(size))
          writer.write(values)
          examples += int(size)
    if not examples:
      raise PredictionError(
        "there is nothing to predict: input_fn gave no example in mode 'predict'")
    os.replace(temporary, output)
  finally:
    if os.path.exists(temporary):
      os.remove(temporary)
  return Prediction(examples, tuple(predictions), checkpoint, time.monotonic() - began)


class _LineWriter:
  """Writes a line for each example."""

  def __init__(self, path: str):
    self._file = open(path, "w", encoding="utf-8", newline="")

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._file.close()


class _CsvWriter(_LineWriter):
  """Writes one example a line, one number a column."""

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
      raise PredictionError("the shape of a prediction changes between batches, and a .csv file "
                            "has the same columns in every line: write .jsonl")
    flat = [array.reshape(len(array), -1) for array in values.values()]
    for row in zip(*flat):
      self._writer.writerow([_text(value) for array in row for value in array])


class _JsonWriter(_LineWriter):
  """Writes one object a line; NaN and infinities as Python's json reads them."""

  def write(self, values: Dict[str, np.ndarray]) -> None:
    for row in zip(*values.values()):
      example = {name: _plain(value) for name, value in zip(values, row)}
      self._file.write(json.dumps(example) + "\n")


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
      if arrays[name].dtype == object:  # strings, which TensorFlow returns as bytes of any length
        arrays[name] = arrays[name].astype(np.bytes_)
    with zipfile.ZipFile(self._path, "w") as archive:  # numpy.savez has no array called "file"
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
  """A number or a string as text."""
  if not isinstance(value, bytes):
    return str(value)  # the shortest that brings a number back; its repr has the type around it
  try:
    return value.decode("utf-8")
  except UnicodeDecodeError as error:
    raise PredictionError(f"the string {value!r} is not UTF-8: write .npz") from error


def _plain(value):
  """A value of numpy's as a number, a string or a list."""
  if isinstance(value, np.ndarray) and value.ndim:
    return [_plain(each) for each in value]
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  if isinstance(value, (int, np.integer)):
    return int(value)
  return _text(value) if isinstance(value, bytes) else float(_text(value))
