"""The program of this room's tests: y = w x + b over ten rows, with exact numbers.

x is 0 to 9 and y is 2 x + 1; a test chooses w and b. In mode "eval" and "predict" the rows come in
batches of the shard's size, so that with a size of 4 the last batch has two.
"""

from __future__ import annotations

import atexit
import functools

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.checkpoint import checkpoints

X = np.arange(10, dtype=np.float32)
Y = 2 * X + 1


def input_fn(mode, shard):
  rows = shard.dataset(tf.data.Dataset.from_tensor_slices(({"x": X}, Y)))
  return tf.data.make_one_shot_iterator(rows.batch(shard.batch_size)).get_next()


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  b = tf.Variable(0., name="b")
  y = w * features["x"] + b
  predictions = {"y": y, "pair": tf.stack([y, -y], axis=1), "even": tf.equal(y % 2, 0)}
  if mode == "predict":
    return tf1ps.ModelSpec(predictions=predictions)
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(y - labels)),
    predictions=predictions,
    metrics={"bias": tf.metrics.mean(y - labels), "worst": tf.metrics.mean(tf.abs(y - labels))})


def save(directory, step, w, b, keep=None, **more):
  """Saves a checkpoint with these values, of which `keep` stay; returns its path."""
  values = dict(more, w=w, b=b, global_step=step)
  with tf.Graph().as_default():
    kinds = tuple((name, tf.constant(more[name]).dtype, np.shape(more[name]))
                  for name in sorted(more))
  graph, session, initializers, saver_def = _saving(kinds)
  session.run(list(initializers.values()), {
    initializer.inputs[1]: values[name] for name, initializer in initializers.items()})
  saver_def.max_to_keep = keep or 0
  with graph.as_default():
    saver = tf.train.Saver(saver_def=saver_def)
    saver.set_last_checkpoints_with_time(
      [(path, 0.) for path in checkpoints.listed_checkpoints(str(directory))])
    return saver.save(session, str(directory / "model.ckpt"), global_step=step,
                      write_meta_graph=False)


@functools.lru_cache(maxsize=None)
def _saving(more):
  """A graph and a session to save from, made once; the initializers take the values."""
  with tf.Graph().as_default() as graph:
    variables = [tf.get_variable(name, shape, kind, tf.zeros_initializer())
                 for name, kind, shape in (("w", tf.float32, ()), ("b", tf.float32, ()), *more)]
    variables.append(tf.train.get_or_create_global_step())
    saver_def = tf.train.Saver().as_saver_def()
  return (graph, tf.Session(graph=graph),
          {variable.op.name: variable.initializer for variable in variables}, saver_def)


atexit.register(_saving.cache_clear)  # 1.15's destructor needs what the end of Python takes away
