"""Small graphs on ps and workers, and what of them travels."""
from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.graph import VARIABLE_OPS, task_of_device, task_of_op

PS, WORKER = ["/job:ps/task:0", "/job:ps/task:1"], "/job:worker/task:0"


def setter(num_ps=1, worker=WORKER):
  return tf.train.replica_device_setter(num_ps, worker_device=worker)


def crossings(source=None, target=None):
  """Pairs of a tensor and a task that it travels to, by the devices of the default graph."""
  found = []
  for op in tf.get_default_graph().get_operations():
    here = task_of_op(op)
    for tensor in op.outputs:
      if tensor.dtype == tf.resource or op.type in VARIABLE_OPS:
        continue
      for there in sorted({task_of_op(consumer) for consumer in tensor.consumers()}):
        if here and there and here != there and source in (None, here) and target in (None, there):
          found.append((tensor, there))
  return found


def variable(name, shape, use_resource, dtype=tf.float32, **kwargs):
  """One that counts up from 0 in steps of 0.01, so that parts in a wrong place show."""
  def count(shape, dtype=None, partition_info=None):
    del partition_info
    size = tf.reduce_prod(tf.constant(shape, tf.int32)) if len(shape) else 1
    values = tf.reshape(tf.range(size), shape)
    return tf.cast(values, dtype) * tf.cast(0.01 if dtype.is_floating else 1, dtype)
  return tf.get_variable(name, shape, dtype, count, use_resource=use_resource, **kwargs)


def received(session, fetches, feed=None):
  """Runs fetches; returns how many tensors each task has received from others, by name."""
  options = tf.RunOptions(output_partition_graphs=True)
  metadata = tf.RunMetadata()
  session.run(fetches, feed, options=options, run_metadata=metadata)
  found = {}
  for graph in metadata.partition_graphs:
    for node in graph.node:
      if node.op == "_Recv":
        task = task_of_device(node.device)
        name = node.attr["tensor_name"].s.decode()
        if task_of_device(node.attr["send_device"].s.decode()) != task:
          found.setdefault(task, []).append(name)
  return found
