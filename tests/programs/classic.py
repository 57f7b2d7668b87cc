"""A program that fits y = 3 x + 2 on files of lines "x,y" that queue runners read."""
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps

flags.DEFINE_string("data", "", "The pattern of the files.")
flags.DEFINE_string("more_data", "", "A file to read after them.")
flags.DEFINE_boolean("unstarted", False, "Reads from a queue that nobody fills.")


def input_fn(mode, shard):
  files = shard.files(flags.FLAGS.data)
  if flags.FLAGS.more_data:
    files.append(flags.FLAGS.more_data)
  names = tf.train.string_input_producer(files, num_epochs=shard.epochs, shuffle=False)
  _, line = tf.TextLineReader(skip_header_lines=1).read(names)
  columns = tf.decode_csv(line, [[0.0], [0.0]])
  if flags.FLAGS.unstarted:
    queue = tf.FIFOQueue(10, [tf.float32, tf.float32], [[], []], name="forgotten")
    tf.train.QueueRunner(queue, [queue.enqueue(columns)])
    return queue.dequeue_many(shard.batch_size)
  return tf.train.batch(columns, shard.batch_size, capacity=4 * shard.batch_size,
                        allow_smaller_final_batch=True)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
  y = w * features + b
  if mode == "predict":
    return tf1ps.ModelSpec(predictions={"y": y})
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(y - labels)), predictions={"y": y},
    metrics={"error": tf.metrics.mean(tf.abs(y - labels))})
