"""A program's model with a checkpoint's values, in this process and without a cluster.

Evaluation, prediction and export share these steps:

1. `build` makes the model in a separate graph.
2. `session` opens a session that shares nothing with other sessions or servers of the process. It
   restores the checkpoint, initialises local variables, tables and iterators, and starts the queue
   runners.
3. `batches` runs fetches until the input ends. For an input without an end, the number of batches
   is `eval_steps`. If that is None, it is ENDLESS_BATCHES, or 1 if each run makes the tensors anew.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from typing import Any, Callable, Iterator, NamedTuple, Optional, Set, TypeVar

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import (
  checkpoint_exists,
  make_saver_for,
  restore_checkpoint,
  use_latest,
)
from tf1ps.cluster import BoundedSession
from tf1ps.compat import TIMING, new_graph
from tf1ps.graph import says_building
from tf1ps.pipeline import (
  BadRecords,
  Ending,
  EndlessDatasetError,
  Shard,
  adopt_queue_runners,
  ending_of,
  iterator_initializers,
  use_bad_records,
  warn_unfilled_queues,
)
from tf1ps.program import arguments, contract, variable_kind

_log = logging.getLogger("tf1ps")
_Result = TypeVar("_Result")

ENDLESS_BATCHES = 100  # the default of tf.estimator.EvalSpec
_REPEAT = "let it call repeat() in mode 'train' alone"
_said: Set[str] = set()  # a process global: the lines about an input without an end


class TrainedModel(NamedTuple):
  """A program's model in a separate graph."""

  graph: tf.Graph
  features: Any  # as input_fn returned them
  spec: contract.ModelSpec  # checked for the mode
  batch_size: tf.Tensor  # scalar int: the examples in a batch
  mode: str  # "eval" or "predict"
  most_batches: Optional[int]  # the most batches of a pass; None: until the input ends


def build(program: contract.Program, mode: str, batch_size: int,
          bad: Optional[BadRecords] = None) -> TrainedModel:
  """Builds a program's model for a pass over all of its data; returns the model.

  Args:
    program: the program.
    mode: "eval" or "predict". In mode "predict" model_fn gets no labels.
    batch_size: examples in a batch, for the shard.
    bad: the policy for bad records. By default a bad record is an error.

  Raises:
    ProgramError, ModelSpecError: the result of a function of the program is not usable.
    EndlessDatasetError: the input of mode "predict" repeats its data without end.
  """
  with new_graph() as graph, says_building(graph), variable_kind.resource_variables():
    tf.train.get_or_create_global_step()
    use_bad_records((bad or BadRecords()).clone())
    shard = Shard(batch_size=batch_size, epochs=1, mode=mode)
    features, labels = contract.build_input(program, mode, shard)
    size = contract.batch_size_of(features)
    ending = ending_of([features, labels])
    if mode != "eval" and ending is Ending.ENDLESS:
      raise EndlessDatasetError(
        f"input_fn repeats its data without end in mode {mode!r}: {_REPEAT}")
    spec = contract.build_model(program, features, labels if mode == "eval" else None, mode)
  return TrainedModel(graph, features, spec, size, mode,
                      _most_batches(ending, mode, spec.eval_steps))


def _most_batches(ending: Ending, mode: str, eval_steps: Optional[int]) -> Optional[int]:
  """Returns the most batches of a pass; logs a default that the program may not expect, once."""
  if ending is Ending.CONSTANT:
    return 1
  if mode == "eval" and eval_steps is not None or ending is Ending.AT_AN_END:
    return eval_steps if mode == "eval" else None
  if ending is Ending.GENERATED:
    batches, reason = 1, "makes its tensors anew in each run"
  else:
    batches, reason = ENDLESS_BATCHES, "repeats its data without end"
  remedy = (": tf1ps.ModelSpec(eval_steps=N) sets another number" if mode == "eval" else "")
  line = "input_fn %s in mode %r, so a pass has %d batch%s%s" % (
    reason, mode, batches, "" if batches == 1 else "es", remedy)
  if line not in _said:
    _said.add(line)
    _log.warning("%s", line)
  return batches


def use_newest(checkpoint_dir: str, checkpoint: Optional[str],
               use: Callable[[str], _Result]) -> _Result:
  """Calls `use` with a checkpoint, or with the newest readable checkpoint of a directory.

  Args:
    checkpoint_dir: the directory.
    checkpoint: the path of a checkpoint without the endings of its files, or None.
    use: gets the path of the checkpoint.

  Returns:
    The result of `use`.

  Raises:
    CheckpointError: no checkpoint exists, none can be read, or the checkpoint does not fit.
  """
  arguments.check_checkpoint(checkpoint_dir, checkpoint)
  result = None
  if checkpoint is None:
    result = use_latest(checkpoint_dir, use)
  elif checkpoint_exists(checkpoint):
    result = use(checkpoint)
  if result is None:
    raise arguments.no_checkpoint(checkpoint_dir, checkpoint)
  return result


@contextlib.contextmanager
def session(graph: tf.Graph, checkpoint: Optional[str],
            config: Optional[tf.ConfigProto] = None) -> Iterator[tf.Session]:
  """Opens a session of a graph with a checkpoint's values, and finalizes the graph.

  A run in the session raises the error that ended a queue runner.

  Args:
    graph: the graph.
    checkpoint: the checkpoint's path without the endings of its files. None leaves the global
      variables without values.
    config: the session's config.

  Yields:
    The session.

  Raises:
    CheckpointError: the checkpoint does not fit the graph or cannot be read.
  """
  with graph.as_default():
    saver = make_saver_for(checkpoint) if checkpoint else None
    initialise = [tf.local_variables_initializer(), tf.tables_initializer()]
    runners = adopt_queue_runners()
  graph.finalize()
  starts = iterator_initializers(graph, initialise[-1])
  with BoundedSession("", graph, config) as own_session:
    own_session.on_long_run = warn_unfilled_queues
    if checkpoint:
      restore_checkpoint(own_session, saver, checkpoint)
    own_session.run(initialise)
    own_session.run(starts)
    coordinator = tf.train.Coordinator()
    for runner in runners:
      runner.create_threads(own_session, coordinator, daemon=True, start=True)
    try:
      yield own_session
    finally:
      coordinator.request_stop()
      coordinator.join(stop_grace_period_secs=TIMING.runner_threads_end_limit,
                       ignore_live_threads=True)


def batches(own_session: tf.Session, trained: TrainedModel, fetches,
            interrupted: Optional[Callable[[], bool]] = None) -> Iterator[Any]:
  """Yields the values of the fetches for each batch of a pass over the data.

  The batches also end when `interrupted()` returns True.
  """
  return itertools.islice(_until_the_end(own_session, trained, fetches, interrupted),
                          trained.most_batches)


def _until_the_end(own_session, trained, fetches, interrupted):
  began = logged = time.monotonic()
  number = 0
  while not (interrupted is not None and interrupted()):
    try:
      values = own_session.run(fetches)
    except tf.errors.OutOfRangeError:
      return
    yield values
    number += 1
    if trained.most_batches is None and time.monotonic() - logged >= TIMING.reminder_interval:
      hint = "" if logged > began else ". If input_fn repeats its data without end, " + _REPEAT
      logged = time.monotonic()
      _log.info("%d batches read in %.0f s; the input has not ended yet%s", number,
                logged - began, hint)
