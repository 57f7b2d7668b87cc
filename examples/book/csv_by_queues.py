"""A CSV file by two queues and a reader, run by hand: the work that queue runners do in threads.

Example B24. Section: data.
Mechanism: a queue of file names, a TextLineReader, a shuffle queue; closing both queues is the end.
1. The file's name goes into the first queue. Then the queue is closed, since no more names come.
2. Each run of `put_example` reads a line, decodes it, and puts the example into the shuffle queue.
   At the end of a file the reader takes the next name. At the end of the names it raises an
   OutOfRangeError, and the program closes the second queue.
3. `dequeue_up_to(2)` then returns two examples, then one, and then raises an OutOfRangeError. As
   long as the queue is open it waits for two, as dequeue_many does.

This form has two traps. All runs must be of one session, because a reader and a queue without a
shared name end with it. And the queue must have room for all examples (its capacity is 10), because
nothing takes them out while it is being filled. csv_by_queue_runners.py avoids both.
Toolkit: bare TensorFlow. text_line_dataset of tf1ps.pipeline does all this in one call, decodes
batches, and is many times as fast (docs/data.md).

    $ python examples/book/csv_by_queues.py
    put in: 3 examples
    batches of 2, 1
    [1.0, 2.0] -> 0
    [4.0, 5.5] -> 1
    [7.0, -1.0] -> 0
    the last key ends with examples.csv:4
"""

import os
import tempfile

import tensorflow.compat.v1 as tf

LINES = ["x1,x2,target", "1.,2.,0", "4,5.5,1", "7,,0"]


def build():
  """Builds the pipeline; returns the tensors and operations that the program runs."""
  names = tf.queue.FIFOQueue(10, [tf.string], [[]])
  name = tf.placeholder(tf.string, [])
  key, line = tf.TextLineReader(skip_header_lines=1).read(names)
  x1, x2, target = tf.io.decode_csv(line, [[-1.0], [-1.0], [-1]])
  examples = tf.queue.RandomShuffleQueue(
    capacity=10, min_after_dequeue=2, dtypes=[tf.float32, tf.int32], shapes=[[2], []])
  with tf.control_dependencies([examples.enqueue([tf.stack([x1, x2]), target])]):
    put_example = tf.identity(key)
  return (name, names.enqueue([name]), names.close(), put_example, examples.close(),
          examples.dequeue_up_to(2))


def main():
  """Writes a small file, and reads it."""
  tf.disable_v2_behavior()
  name, put_name, close_names, put_example, close_examples, batch = build()
  with tempfile.TemporaryDirectory() as folder, tf.Session() as session:
    path = os.path.join(folder, "examples.csv")
    with open(path, "w") as file:
      file.write("\n".join(LINES) + "\n")
    session.run(put_name, {name: path})
    session.run(close_names)
    keys = []
    try:
      while True:
        keys.append(session.run(put_example).decode())
    except tf.errors.OutOfRangeError:
      session.run(close_examples)
    print("put in: %d examples" % len(keys))
    batches = []
    try:
      while True:
        x, target = session.run(batch)
        batches.append(list(zip(x.tolist(), target.tolist())))
    except tf.errors.OutOfRangeError:
      print("batches of", ", ".join("%d" % len(examples) for examples in batches))
  for x, target in sorted(sum(batches, [])):  # they came in a random order
    print(x, "->", target)
  print("the last key ends with", os.path.basename(keys[-1]))


if __name__ == "__main__":
  main()
