"""An error in a queue runner's thread without a coordinator is lost: the consumer waits.

Expected: the consumer gets the error.
"""
import tensorflow.compat.v1 as tf
from helper import leave, name, ready, within

tf.disable_eager_execution()
files = tf.train.string_input_producer(["/there/is/no/such/file"])
key, value = tf.TextLineReader().read(files)
lines = tf.train.batch([value], 2)
session = tf.Session()
session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
ready()
tf.train.start_queue_runners(session)
found = within(6, lambda: session.run(lines))
leave("it waits" if found == "nothing" else name(found))
