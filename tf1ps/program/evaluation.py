"""Evaluation: the metrics of a checkpoint over all of the evaluation data, in one process."""

from __future__ import annotations

import time
from typing import Callable, Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import global_step_of_checkpoint
from tf1ps.compat import Error
from tf1ps.pipeline import BadRecords
from tf1ps.program import model, trained_model, variable_kind
from tf1ps.program.loader import Program


class Evaluation(NamedTuple):
  """What an evaluation found."""

  metrics: Dict[str, float]  # the program's, and "loss" where the model has one
  examples: int  # how many were evaluated
  global_step: Optional[int]  # of the checkpoint; None if it has none
  seconds: float  # from building the graph to the last number


class EvaluationError(Error, RuntimeError):
  """The evaluation has no result."""


def evaluate(program: Program, checkpoint: str, batch_size: int,
             variables: str = variable_kind.RESOURCE, config: Optional[tf.ConfigProto] = None,
             interrupted: Optional[Callable[[], bool]] = None,
             bad: Optional[BadRecords] = None) -> Optional[Evaluation]:
  """Evaluates a checkpoint.

  Args:
    program: the program; its functions are called with mode "eval".
    checkpoint: the checkpoint's path without the endings of its files.
    batch_size: examples in a batch.
    variables: their kind, "resource" or "ref"; a checkpoint fits both.
    config: of the session.
    interrupted: ends the evaluation between two batches when it returns True.
    bad: the policy for bad records; None: they fail.

  Returns:
    The evaluation, or None if it was interrupted.

  Raises:
    CheckpointError: the checkpoint does not fit the model, or cannot be read.
    EvaluationError: the evaluation data is empty, or a metric has no value when it has ended.
    ProgramError, ModelSpecError: the program's functions returned something unusable.
  """
  began = time.monotonic()
  trained = trained_model.build(program, "eval", batch_size, variables, bad)
  with trained.graph.as_default(), variable_kind.kind_scope(variables):
    metrics = model.metrics_with_loss(trained.spec, trained.batch_size)
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
      found = session.run(values)
    except tf.errors.OutOfRangeError as error:
      raise EvaluationError("the value of a metric needs a further batch: it must depend on the "
                            f"metric's variables alone ({error.message})") from error
  if not examples:  # asked after the session, whose end tells why a queue was empty
    raise EvaluationError("there is nothing to evaluate: input_fn gave no example in mode 'eval'")
  return Evaluation({name: float(value) for name, value in found.items()}, examples, global_step,
                    time.monotonic() - began)


def format_evaluation(evaluation: Evaluation) -> str:
  """Says an evaluation in one line, the loss last.

  Returns:
    Such as "test accuracy 0.9711, test loss 0.1034 at step 1200 (360 examples, 0.4 s)".
  """
  names = sorted(
    evaluation.metrics, key=lambda name: name == model.LOSS_METRIC
  )  # the order stays else
  said = ", ".join(f"test {name} {evaluation.metrics[name]:.4f}" for name in names)
  step = "" if evaluation.global_step is None else f" at step {evaluation.global_step}"
  return f"{said}{step} ({evaluation.examples} examples, {evaluation.seconds:.1f} s)"
