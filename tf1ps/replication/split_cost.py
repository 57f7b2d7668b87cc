"""What a split costs: bytes that travel between devices in a step, and seconds beside the unsplit.

`crossings` reads the bytes off the graph: each tensor that one device makes and another one needs
travels there once a step, whoever needs it there and however often. `compare` takes the time of two
steps in turn, so that whatever else the machine does meets both. `table` puts both into lines:

              ms a step    bytes a step between devices
  unsplit         1.204                               0
  split           2.311                         524,288
  the split takes 1.92 times as long: it is not worth it
"""

from __future__ import annotations

import statistics
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.graph import (
  FUNCTION_CALLERS,
  LOCAL_CPU,
  OpDevices,
  depths,
  in_order,
  is_enter,
  needed_ops,
)


class Crossing(NamedTuple):
  """A tensor that travels from one device to another."""

  tensor: str  # its name
  source: str  # the device that makes it
  destination: str  # the device that needs it
  bytes: int  # in a step; in a loop, those of all its iterations


class Comparison(NamedTuple):
  """The times of two steps that were run in turn."""

  unsplit: float  # seconds a step, the median
  split: float  # seconds a step, the median

  @property
  def ratio(self) -> float:
    """How many times as long the split step takes; below 1: it was worth it."""
    return self.split / self.unsplit


def crossings(fetches: Sequence, default_device: str = LOCAL_CPU,
              iterations: Optional[int] = None) -> List[Crossing]:
  """Finds what travels between devices when these are run.

  What TensorFlow decides later is left out: a constant may be computed in both places, and signals
  without a value (control dependencies) are counted by nobody.

  Args:
    fetches: tensors or operations of one graph: a train op, say.
    default_device: where an operation without a device runs; also fills in what a device leaves
      open. On a cluster: "/job:worker/task:0" of the session's target.
    iterations: how often loops run, where there are some. A gradient's loop counts too.

  Returns:
    A `Crossing` for each tensor and destination, in the order of the graph.

  Raises:
    ValueError: a tensor whose size is not known: a shape that is not static, strings; a loop whose
      `iterations` are not given; control flow in functions (`tf.disable_control_flow_v2`).
  """
  fetches = [tf.get_default_graph().as_graph_element(f) if isinstance(f, str) else f
             for f in fetches]
  ops = needed_ops([fetch if isinstance(fetch, tf.Operation) else fetch.op for fetch in fetches])
  devices, looped = OpDevices(default_device), _in_loops(ops)
  if looped and iterations is None:
    raise ValueError("%s stands in a loop: say by iterations= how often it runs" % (
      min(op.name for op in looped)))
  found: Dict[tuple, Crossing] = {}
  for op in ops:
    if op.type in FUNCTION_CALLERS:
      raise ValueError("%s is a %s, whose work stands in a function: build the graph after "
                       "tf.disable_control_flow_v2()" % (op.name, op.type))
    destination = devices.of(op)
    for tensor in op.inputs:
      source = devices.of(tensor.op)
      if source != destination and tensor.dtype not in (tf.resource, tf.variant):
        times = iterations if op in looped else 1
        found[tensor.name, destination] = Crossing(
          tensor.name, source, destination, times * _size(tensor))
  return list(found.values())


def total_crossings(found: Sequence[Crossing]) -> int:
  """The bytes of all crossings together."""
  return sum(crossing.bytes for crossing in found)


def crossings_by_devices(found: Sequence[Crossing]) -> Dict[tuple, int]:
  """{(source, destination): bytes a step}."""
  sums: Dict[tuple, int] = {}
  for crossing in found:
    way = crossing.source, crossing.destination
    sums[way] = sums.get(way, 0) + crossing.bytes
  return sums


def compare_split(unsplit: Callable[[], object], split: Callable[[], object], steps: int = 50,
            warm_up: int = 3) -> Comparison:
  """Takes the time of two steps, run in turn.

  Args:
    unsplit: runs one step: `lambda: session.run(train_op)`.
    split: runs one step, of another session or another graph.
    steps: how often each is run.
    warm_up: how often each is run before; the first runs of a session take longer.

  Returns:
    A `Comparison`.

  Raises:
    ValueError: no steps.
  """
  if steps < 1 or warm_up < 0:
    raise ValueError("steps must be 1 or more and warm_up 0 or more, got %r and %r" % (
      steps, warm_up))
  seconds: Dict[Callable, List[float]] = {unsplit: [], split: []}
  for step in range(warm_up + steps):
    # Whoever comes first in a turn may find the machine warmer, or colder.
    for run in (unsplit, split) if step % 2 else (split, unsplit):
      began = time.perf_counter()
      run()
      seconds[run].append(time.perf_counter() - began)
  return Comparison(*(statistics.median(seconds[run][warm_up:]) for run in (unsplit, split)))


def split_table(times: Comparison, split_bytes: int, unsplit_bytes: int = 0) -> str:
  """The costs of both steps as lines, with whether the split was worth it."""
  lines = ["%-10s %12s %31s" % ("", "ms a step", "bytes a step between devices")]
  for name, seconds, count in (("unsplit", times.unsplit, unsplit_bytes),
                               ("split", times.split, split_bytes)):
    lines.append("%-10s %12.3f %31s" % (name, 1e3 * seconds, format(count, ",")))
  lines.append("the split takes %.2f times as long: it is %sworth it" % (
    times.ratio, "" if times.ratio < 1 else "not "))
  return "\n".join(lines)


def _in_loops(ops) -> set:
  """Returns the operations that run once per iteration of a loop."""
  found = depths(in_order(ops))
  # An Enter counts as inside of its own loop, but runs once.
  return {op for op in ops if found[op.name].loops > (1 if is_enter(op) else 0)}


def _size(tensor) -> int:
  """The bytes of a tensor."""
  size = tensor.dtype.base_dtype.size
  if not tensor.shape.is_fully_defined() or size is None or tensor.dtype.base_dtype == tf.string:
    raise ValueError("the bytes of %s are not known: it is %s of the shape %s; give the graph that "
                     "is measured inputs of a known batch size" % (
                       tensor.name, tensor.dtype.name, tensor.shape))
  return size * tensor.shape.num_elements()
