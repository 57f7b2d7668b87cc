"""Evaluates a trained program, predicts with it and exports it, from Python code or a notebook.

The calls work in this process, in separate graphs and sessions, even if TensorFlow 2 executes
eagerly. Their arguments have the names of the flags of tf1ps-predict.
"""

from __future__ import annotations

import os
from typing import Any, Optional

from tf1ps.pipeline import FAIL_ON_BAD_RECORD, BadRecords, parse_bad_record_policy
from tf1ps.program import arguments, contract, evaluation, prediction, saved_model, trained_model


def evaluate(program: contract.AnyProgram, checkpoint_dir: Optional[str] = None, *,
             checkpoint: Optional[str] = None, batch_size: int = 32,
             on_bad_record: str = FAIL_ON_BAD_RECORD) -> evaluation.Evaluation:
  """Evaluates a checkpoint of a program on its evaluation data.

  Args:
    program: a module, its name, the path of a .py file, or the pair `(input_fn, model_fn)`. The
      flags that it defines have the values of this process.
    checkpoint_dir: the directory of a job. The call uses its latest checkpoint that can be read.
    checkpoint: the path of another checkpoint, without the endings of its files, such as
      `run_local(...).checkpoint`; None or "latest": the latest checkpoint of the directory.
    batch_size: examples in a batch.
    on_bad_record: "fail", "skip" or "skip:R", like the flag.

  Returns:
    The `Evaluation`, with `metrics`, `examples`, `global_step` and `checkpoint`.

  Raises:
    ValueError: an argument is missing or wrong, or the program cannot be used.
    CheckpointError: the checkpoint is missing, does not fit the model, or cannot be read.
    EvaluationError: there is no example, or a metric has no value.
  """
  checked, bad = _check(program, checkpoint_dir, checkpoint, batch_size, on_bad_record)
  done = trained_model.use_newest(
    checkpoint_dir or "", arguments.path_of(checkpoint),
    lambda path: evaluation.evaluate_checkpoint(checked, path, batch_size, bad=bad))
  assert done is not None  # nothing interrupts it
  return done


def predict(program: contract.AnyProgram, checkpoint_dir: Optional[str] = None, *,
            checkpoint: Optional[str] = None, input: Any = None, output: Any = None,
            batch_size: int = 32, on_bad_record: str = FAIL_ON_BAD_RECORD) -> prediction.Prediction:
  """Predicts the program's examples, or the examples of a file, with a checkpoint.

  Args:
    program, checkpoint_dir, checkpoint, batch_size, on_bad_record: as for `evaluate`.
    input: a file of new data that replaces the program's data: .csv, .jsonl, .npz or .tfrecord.
    output: the file to write: .csv, .jsonl or .npz. None: the result has the predictions.

  Returns:
    The `Prediction`, with `examples` and `checkpoint`. Without `output`, it also has `values`:
    {name: array of shape [examples, ...]}, in the order of the examples.

  Raises:
    ValueError: an argument is missing or wrong, the program cannot be used, or `input` does not
      fit the program (NewDataError, with file and line).
    CheckpointError: as for `evaluate`.
    PredictionError: `output` cannot be written, or the data has no examples.
  """
  checked, bad = _check(program, checkpoint_dir, checkpoint, batch_size, on_bad_record)
  if input is not None:
    arguments.check_input(os.fspath(input), on_bad_record)
  return prediction.predict_examples(
    checked, checkpoint_dir or "", None if output is None else os.fspath(output), batch_size,
    arguments.path_of(checkpoint), bad=bad, new_data=None if input is None else os.fspath(input))


def export(program: contract.AnyProgram, checkpoint_dir: Optional[str] = None, *,
           output: Any, checkpoint: Optional[str] = None) -> saved_model.Export:
  """Writes a checkpoint's model as a SavedModel.

  Args:
    program, checkpoint_dir, checkpoint: as for `evaluate`.
    output: the directory to make. It must not exist, or must be empty.

  Returns:
    The `Export`, with `export_dir`, `checkpoint`, `inputs` and `outputs`.

  Raises:
    ValueError, CheckpointError: as for `evaluate`.
    ExportError: the directory is not empty or cannot be written.
  """
  checked, _ = _check(program, checkpoint_dir, checkpoint, 1, FAIL_ON_BAD_RECORD)
  return saved_model.export_saved_model(
    checked, checkpoint_dir or "", os.fspath(output), arguments.path_of(checkpoint))


def _check(program, checkpoint_dir, checkpoint, batch_size, on_bad_record):
  """Returns the program and the policy for bad records; raises CallError."""
  arguments.check_given(checkpoint_dir, checkpoint)
  if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
    raise arguments.CallError(f"batch_size must be an int of at least 1, got {batch_size!r}")
  try:
    policy = parse_bad_record_policy(on_bad_record)
  except (ValueError, AttributeError) as error:
    raise arguments.CallError(f"on_bad_record {error}, got {on_bad_record!r}") from error
  return contract.as_program(program), BadRecords(*policy)
