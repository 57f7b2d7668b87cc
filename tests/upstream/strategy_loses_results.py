"""`ParameterServerStrategy.run` in graph mode returns None: the results of the function are lost.

Expected: the tensor that the function returns.
"""
import json
import os

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

tf.disable_eager_execution()
os.environ["TF_CONFIG"] = json.dumps({
  "cluster": {"ps": [address()], "worker": [address()]}, "task": {"type": "worker", "index": 0}})
ready()
strategy = tf.distribute.experimental.ParameterServerStrategy()
with strategy.scope():
  run = getattr(strategy, "run", None) or strategy.experimental_run_v2
  found = run(lambda: tf.constant(3.0))
leave("None" if found is None else "a result")
