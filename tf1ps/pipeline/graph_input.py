"""The notes of tf1ps on the input of a graph; tf1ps attaches nothing else to a graph.

A program's `input_fn` builds in the default graph and returns only tensors, and sessions find queue
runners in the graph's collection. So some values cannot travel as arguments from the function that
builds an input to the session that runs it. `GraphInput` holds these values, and gives the reason
for each. It is an attribute of the graph, because its tensors refer to the graph: a dictionary with
graphs as keys would keep the graphs alive.
"""

from __future__ import annotations

import collections
import threading
from typing import Callable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline.bad_records import BadRecords

_ATTRIBUTE = "_tf1ps_input"


class InputFile(NamedTuple):
  """A file whose records have positions."""

  path: str
  numbered: bool  # whether it holds records that have numbers; else the file is the record
  values: Callable[[], tf.data.Dataset]  # makes a dataset of the strings in the file


class RecordSource(NamedTuple):
  """Two tensors from which records come."""

  keys: tf.Tensor  # string, scalar or [n]: where each record is, such as "a.csv:17"
  values: tf.Tensor  # string, of the same shape: the records


class GraphInput:
  """The notes of tf1ps on the input of a graph.

  Attributes:
    files: the table of `InputFile`s. A record travels through the graph with an integer that holds
      its file's index in this table, and only an error needs the name.
    bad_records: the policy for records that cannot be decoded. The task sets the policy from its
      flags. Then the program, which does not know the policy, builds the decoders.
    record_sources: the `RecordSource`s that no Reader marks. The queue runner that decodes their
      records looks for these sources when it starts.
    errors: {number: error}, the errors that Python code in the graph raised. A run returns only the
      text of an error, which names the number.
    lock: held while `errors` changes.
  """

  def __init__(self):
    self.files: List[InputFile] = []
    self.bad_records = BadRecords()
    self.record_sources: List[RecordSource] = []
    self.errors = collections.OrderedDict()
    self.lock = threading.Lock()


def input_of(graph: Optional[tf.Graph] = None) -> GraphInput:
  """Returns the `GraphInput` of a graph, by default of the default graph."""
  graph = graph or tf.get_default_graph()
  if getattr(graph, _ATTRIBUTE, None) is None:
    setattr(graph, _ATTRIBUTE, GraphInput())
  return getattr(graph, _ATTRIBUTE)


def use_bad_records(policy: BadRecords, graph: Optional[tf.Graph] = None) -> None:
  """Sets the policy for bad records of a graph (None: the default) before it decodes records."""
  input_of(graph).bad_records = policy


def add_record_source(keys: tf.Tensor, values: tf.Tensor) -> None:
  """Marks two tensors as records and their keys, so that a queue runner can name a bad record.

  The results of TensorFlow's Readers need no mark. Call this function if records pass through a
  queue before they are decoded. `keys` says where each record is, such as "a.csv:17". It has the
  same shape as `values`: a scalar or [n].
  """
  input_of(keys.graph).record_sources.append(RecordSource(keys, values))
