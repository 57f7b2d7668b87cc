"""The cost of a split model: the bytes per step between devices, and the time of a step.

`crossings` reads the bytes from the graph: each tensor that a device makes and another device
needs travels there once per step, for any number of uses. `compare_split` measures two steps
alternately, so that other load of the machine affects both. `split_table` formats both:

            ms per step  bytes per step between devices
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
  bytes: int  # per step, with all iterations of a loop


class Comparison(NamedTuple):
  """The times of two steps that were run alternately."""

  unsplit: float  # seconds per step, the median
  split: float  # seconds per step, the median

  @property
  def ratio(self) -> float:
    """The split step's time divided by the unsplit step's; below 1 the split was worth it."""
    return self.split / self.unsplit


def crossings(fetches: Sequence, default_device: str = LOCAL_CPU,
              iterations: Optional[int] = None) -> List[Crossing]:
  """Finds the tensors that travel between devices in a run.

  TensorFlow may later compute a constant on both devices. Control dependencies, which carry no
  value, are not counted.

  Args:
    fetches: tensors or operations of the same graph, such as a train op.
    default_device: the device of operations without a device; it also completes partial devices.
      On a cluster: "/job:worker/task:0" of the session's target.
    iterations: the number of iterations of each loop, if the graph has loops, including loops in
      gradients.

  Returns:
    A `Crossing` for each tensor and destination, in the order of the graph.

  Raises:
    ValueError: the size of a tensor is not known (a shape that is not static, or strings); the
      graph has a loop and `iterations` is None; or control flow is in functions (call
      `tf.disable_control_flow_v2`).
  """
  fetches = [tf.get_default_graph().as_graph_element(f) if isinstance(f, str) else f
             for f in fetches]
  ops = needed_ops([fetch if isinstance(fetch, tf.Operation) else fetch.op for fetch in fetches])
  devices, looped = OpDevices(default_device), _in_loops(ops)
  if looped and iterations is None:
    raise ValueError("%s is in a loop. Give the number of iterations by iterations=." % (
      min(op.name for op in looped)))
  by_key: Dict[tuple, Crossing] = {}
  for op in ops:
    if op.type in FUNCTION_CALLERS:
      raise ValueError("%s is a %s, which runs a function. Build the graph after "
                       "tf.disable_control_flow_v2()" % (op.name, op.type))
    destination = devices.of(op)
    for tensor in op.inputs:
      source = devices.of(tensor.op)
      if source != destination and tensor.dtype not in (tf.resource, tf.variant):
        times = 1 if iterations is None or op not in looped else iterations
        by_key[tensor.name, destination] = Crossing(
          tensor.name, source, destination, times * _size(tensor))
  return list(by_key.values())


def total_crossings(tensors: Sequence[Crossing]) -> int:
  """Returns the bytes of all crossings together."""
  return sum(crossing.bytes for crossing in tensors)


def crossings_by_devices(tensors: Sequence[Crossing]) -> Dict[tuple, int]:
  """Returns {(source, destination): bytes per step}."""
  sums: Dict[tuple, int] = {}
  for crossing in tensors:
    way = crossing.source, crossing.destination
    sums[way] = sums.get(way, 0) + crossing.bytes
  return sums


def compare_split(unsplit: Callable[[], object], split: Callable[[], object], steps: int = 50,
                  warm_up: int = 3) -> Comparison:
  """Measures two steps, run alternately; returns a `Comparison`.

  Args:
    unsplit: runs a step: `lambda: session.run(train_op)`.
    split: runs a step of another session or another graph.
    steps: the number of measured runs of each.
    warm_up: the number of earlier runs of each, because the first runs of a session take longer.

  Raises:
    ValueError: `steps` is below 1, or `warm_up` below 0.
  """
  if steps < 1 or warm_up < 0:
    raise ValueError("steps must be 1 or more and warm_up 0 or more, got %r and %r" % (
      steps, warm_up))
  seconds: Dict[Callable, List[float]] = {unsplit: [], split: []}
  for step in range(warm_up + steps):
    # The order alternates, because the first run of a pair may be slower or faster.
    for run in (unsplit, split) if step % 2 else (split, unsplit):
      began = time.perf_counter()
      run()
      seconds[run].append(time.perf_counter() - began)
  return Comparison(*(statistics.median(seconds[run][warm_up:]) for run in (unsplit, split)))


def split_table(times: Comparison, split_bytes: int, unsplit_bytes: int = 0) -> str:
  """Returns the costs of both steps as lines; the last line says if the split was worth it."""
  lines = ["%-10s %12s %31s" % ("", "ms per step", "bytes per step between devices")]
  for name, seconds, count in (("unsplit", times.unsplit, unsplit_bytes),
                               ("split", times.split, split_bytes)):
    lines.append("%-10s %12.3f %31s" % (name, 1e3 * seconds, format(count, ",")))
  lines.append("the split takes %.2f times as long: it is %sworth it" % (
    times.ratio, "" if times.ratio < 1 else "not "))
  return "\n".join(lines)


def _in_loops(ops) -> set:
  """Returns the operations that run once per iteration of a loop."""
  depth_of = depths(in_order(ops))
  # `depths` counts an Enter as part of its own loop, but an Enter runs once.
  return {op for op in ops if depth_of[op.name].loops > (1 if is_enter(op) else 0)}


def _size(tensor) -> int:
  size = tensor.dtype.base_dtype.size
  if not tensor.shape.is_fully_defined() or size is None or tensor.dtype.base_dtype == tf.string:
    raise ValueError("the size of %s is not known: its type is %s, its shape %s. Give the measured "
                     "graph inputs of a known batch size." % (
                       tensor.name, tensor.dtype.name, tensor.shape))
  return size * tensor.shape.num_elements()
