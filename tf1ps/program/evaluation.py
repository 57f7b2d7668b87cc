"""Evaluates a checkpoint over all evaluation data, in one process."""

from __future__ import annotations

import os
import time
from typing import Callable, Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import global_step_of_checkpoint
from tf1ps.compat import Error
from tf1ps.pipeline import BadRecords
from tf1ps.program import contract, trained_model, variable_kind

_NO_EXAMPLE = "there is nothing to evaluate: input_fn gave no example in mode 'eval'"


class Evaluation(NamedTuple):
  """The result of an evaluation."""

  metrics: Dict[str, float]  # the program's metrics, and "loss" if the model has a loss
  examples: int  # the number of examples
  global_step: Optional[int]  # the checkpoint's global step; None if it has none
  seconds: float  # from the start of the graph's construction to the last value
  checkpoint: str = ""  # the path of the checkpoint


class EvaluationError(Error, RuntimeError):
  """An evaluation has no result."""


def evaluate_checkpoint(program: contract.Program, checkpoint: str, batch_size: int,
                        config: Optional[tf.ConfigProto] = None,
                        interrupted: Optional[Callable[[], bool]] = None,
                        bad: Optional[BadRecords] = None) -> Optional[Evaluation]:
  """Evaluates a checkpoint; returns the evaluation, or None if it was interrupted.

  Args:
    program: the program; its functions are called with mode "eval".
    checkpoint: the checkpoint's path without the endings of its files.
    batch_size: examples in a batch.
    config: the session's config.
    interrupted: a callable; when it returns True, the evaluation ends before the next batch.
    bad: the policy for bad records. By default a bad record is an error.

  Raises:
    CheckpointError: the checkpoint does not fit the model, or cannot be read.
    EvaluationError: the evaluation data is missing, or a metric has no value at the data's end.
    ProgramError, ModelSpecError: the result of a function of the program is not usable.
  """
  began = time.monotonic()
  trained, metrics = _build(program, batch_size, bad)
  values = {name: value for name, (value, _) in metrics.items()}
  updates = [update_op for _, update_op in metrics.values()]
  global_step = global_step_of_checkpoint(checkpoint)
  examples = 0
  with trained_model.session(trained.graph, checkpoint, config) as session:
    fetches = (trained.batch_size, updates)
    for size, _ in trained_model.batches(session, trained, fetches, interrupted):
      examples += int(size)
    if interrupted is not None and interrupted():
      return None
    try:
      results = session.run(values)
    except tf.errors.OutOfRangeError as error:
      raise EvaluationError("the value of a metric needs a further batch. Let it depend on the "
                            f"metric's variables alone ({error.message})") from error
  if not examples:  # here, because the end of the session raises the error that emptied a queue
    raise EvaluationError(_NO_EXAMPLE)
  return Evaluation({name: float(value) for name, value in results.items()}, examples, global_step,
                    time.monotonic() - began, checkpoint)


def try_evaluation(program: contract.Program, batch_size: int,
                   bad: Optional[BadRecords] = None) -> None:
  """Builds the evaluation of a program and reads a batch, so that mistakes show before training.

  The arguments and errors are those of `evaluate_checkpoint`.
  """
  trained, _ = _build(program, batch_size, bad)
  with trained_model.session(trained.graph, None) as session:
    features = [leaf for leaf in tf.nest.flatten(trained.features) if leaf is not None]
    if not any(True for _ in trained_model.batches(session, trained, features)):
      raise EvaluationError(_NO_EXAMPLE)


def metric_names(program: contract.Program, batch_size: int,
                 bad: Optional[BadRecords] = None) -> List[str]:
  """Returns the names of the metrics; arguments and errors are those of `evaluate_checkpoint`."""
  return sorted(_build(program, batch_size, bad)[1])


def _build(program, batch_size, bad):
  """Returns the model in mode "eval" and its metrics."""
  trained = trained_model.build(program, "eval", batch_size, bad)
  with trained.graph.as_default(), variable_kind.resource_variables():
    return trained, contract.metrics_with_loss(trained.spec, trained.batch_size)


def format_evaluation(evaluation: Evaluation) -> str:
  """Formats an evaluation as one line, with the loss last.

  An example is "test accuracy 0.9711, test loss 0.1034 at step 1200 (360 examples, 0.4 s)". The
  step is the step of the saved values. If other workers made steps during the save, the line also
  has the name of the checkpoint, because that name has the step at which the save began.
  """
  names = sorted(evaluation.metrics, key=lambda name: name == contract.LOSS_METRIC)
  values = ", ".join(f"test {name} {evaluation.metrics[name]:.4f}" for name in names)
  step = "" if evaluation.global_step is None else f" at step {evaluation.global_step}"
  name = os.path.basename(evaluation.checkpoint)
  number = name.rpartition("-")[2]
  began = number.isdigit() and evaluation.global_step not in (None, int(number))
  file = f"in {name}, whose save began before, " if began else ""
  return (f"{values}{step} ({file}{evaluation.examples} examples, {evaluation.seconds:.1f} s)")
