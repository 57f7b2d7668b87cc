"""What tests of `tf1ps.v1` run as processes: importing it changes TensorFlow's mode."""
from __future__ import annotations

import importlib
import importlib.util
import pydoc
import sys

import tensorflow.compat.v1 as stock


def drop_ins():
  import tf1ps
  import tf1ps.v1 as tf
  from tf1ps import compat, pipeline, session
  for space, rooms in compat.DROP_INS.items():
    namespace = importlib.import_module(".".join(filter(None, ["tf1ps.v1", space])))
    for room, names in rooms.items():
      for name in names:
        own = getattr(importlib.import_module("tf1ps." + room), name)
        assert getattr(namespace, name) is own, (space, name)
  assert not tf.executing_eagerly() and not tf.resource_variables_enabled()
  assert tf.Session is session.Session
  for name in ("Server", "replica_device_setter", "Supervisor", "MonitoredTrainingSession",
               "Coordinator", "SyncReplicasOptimizer", "start_queue_runners"):
    assert getattr(tf.train, name) is getattr(tf1ps, name)
    assert name in dir(tf.train) and name in tf.train.__all__
  assert tf.distribute.Server is tf1ps.Server
  assert tf.distribute.MirroredStrategy is stock.distribute.MirroredStrategy
  for name in ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"):
    assert getattr(tf, name) is getattr(tf.queue, name) is getattr(tf1ps, name)
  assert tf.train.shuffle_batch is pipeline.shuffle_batch
  assert tf.train.string_input_producer is pipeline.string_input_producer
  assert tf.contrib.training.GreedyLoadBalancingStrategy is tf1ps.GreedyLoadBalancingStrategy
  assert sys.modules["tf1ps.cluster.server"]._end_waiter.__module__ == "tf1ps.state.ending"
  seven = tf.constant(7)
  with tf.train.MonitoredTrainingSession() as training, tf.Session() as plain:
    assert training.run(seven) == plain.run(seven) == 7
  _objects_of_tensorflow_are_of_the_drop_ins(tf)


def _objects_of_tensorflow_are_of_the_drop_ins(tf):
  seen = []

  class Hook(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
      seen.append((isinstance(session, tf.Session), isinstance(coord, tf.train.Coordinator)))

    def before_run(self, run_context):
      assert isinstance(run_context.session, tf.Session)

  def step(step_context):
    assert isinstance(step_context.session, tf.Session)
    step_context.run_with_hooks(tf.get_default_graph().get_operation_by_name("nothing"))
    seen.append("step")

  def init(*given):
    assert isinstance(given[-1], tf.Session)
    seen.append("init_fn")

  class MySession(tf.Session):
    pass

  with tf.Graph().as_default(), tf.train.SingularMonitoredSession(hooks=[Hook()]) as session:
    assert isinstance(session.raw_session(), tf.Session)
    assert not isinstance(session.raw_session(), MySession)
  with tf.Graph().as_default():
    tf.no_op(name="nothing")
    with tf.train.MonitoredTrainingSession(
        hooks=[Hook()], scaffold=tf.train.Scaffold(init_fn=init)) as session:
      session.run_step_fn(step)
  assert seen == [(True, True), "init_fn", (True, True), "step"]
  with tf.Graph().as_default():
    supervisor = tf.train.Supervisor(init_fn=init)
    with supervisor.managed_session() as session:
      assert isinstance(session, tf.Session) and issubclass(type(session), tf.Session)
  assert seen.count("init_fn") == 2
  with tf.Graph().as_default():
    made = [tf.train.SessionManager().prepare_session("", init_op=tf.no_op()),
            tf.train.ChiefSessionCreator(tf.train.Scaffold()).create_session()]
    assert all(isinstance(session, tf.Session) for session in made)
  with tf.Graph().as_default():
    assert isinstance(tf.train.range_input_producer(5), tf.FIFOQueue)
  assert isinstance(stock.train.Server.create_local_server(), tf.train.Server)
  for name in ("FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"):
    assert issubclass(getattr(stock, name), getattr(tf, name))
    assert not issubclass(tf.QueueBase, getattr(tf, name))


def the_rest_is_tensorflows():
  import tf1ps.v1 as tf
  assert tf.constant is stock.constant and tf.train.Saver is stock.train.Saver
  assert tf.compat.v1 is tf and tf.compat.as_bytes is stock.compat.as_bytes
  assert tf.__version__ == stock.__version__ and tf.VERSION == stock.VERSION
  assert importlib.import_module("tf1ps.v1.python").__name__.startswith("tensorflow")
  assert tf.losses is stock.losses and tf.app.flags.FLAGS is stock.app.flags.FLAGS
  assert tf.__version__ == stock.__version__ and not hasattr(tf.train, "__wrapped__")
  names = dir(tf)
  assert {"constant", "train", "contrib", "app", "FIFOQueue", "keras"} <= set(names)
  assert not {"annotations", "namespace", "graph_mode", "typing"} & set(names)
  assert names == tf.__all__ and "overlay" not in dir(tf.train)
  assert "legacy program" in tf.__doc__ and "tf.train" in tf.train.__doc__
  assert "MonitoredTrainingSession" in pydoc.plain(pydoc.render_doc(tf.train))  # help()


def every_way_to_import():
  import tf1ps.v1 as tf1ps_v1
  import tf1ps.v1.compat.v1.train as train
  import tf1ps.v1.losses as losses
  from tf1ps.v1 import contrib, layers
  from tf1ps.v1.contrib import training
  from tf1ps.v1.examples.tutorials.mnist import input_data
  from tf1ps.v1.losses import mean_squared_error
  from tf1ps.v1.nn.rnn_cell import LSTMCell
  from tf1ps.v1.train import Server
  assert train.Server is Server
  assert losses is stock.losses and mean_squared_error is losses.mean_squared_error
  assert LSTMCell is stock.nn.rnn_cell.LSTMCell and callable(Server)
  assert callable(layers.dense) and contrib.training is training
  assert callable(input_data.read_data_sets)
  # What tensorflow.python.layers.normalization and .base have beside the public names.
  from tf1ps.v1.layers import batch_norm, keras_style_scope
  assert batch_norm is layers.batch_normalization
  with tf1ps_v1.Graph().as_default(), keras_style_scope():
    assert batch_norm(tf1ps_v1.ones([2, 3])).shape.as_list() == [2, 3]
  namespace = {}
  exec("from tf1ps.v1.train import *", namespace)
  assert namespace["Server"] is Server


def refusal(owner, name):
  """Returns why a namespace has no such name, which is the same however a program asks for it."""
  assert not hasattr(owner, name)
  for statement in ("from %s import %s", "import %s.%s"):
    try:
      exec(statement % (owner.__name__, name))
    except ImportError as error:
      imported = str(error)
  try:
    getattr(owner, name)
  except AttributeError as error:
    assert str(error) == imported
    return imported


def what_is_nowhere():
  import tf1ps.v1 as tf
  assert refusal(tf, "absent") == "tf.absent is not there: TensorFlow has no such name."
  assert refusal(tf.layers, "absent") == (
      "tf.layers.absent is not there: TensorFlow has no such name.")
  assert refusal(tf.contrib, "absent").startswith("tf.contrib.absent is not there")
  assert refusal(tf.train, "Supervisr").endswith("no such name. Did you mean Supervisor?")


def keras_3_was_chosen():
  import tf1ps.v1 as tf
  assert refusal(tf.layers, "dense") == (
      "tf.layers.dense is not there: the environment sets TF_USE_LEGACY_KERAS=0. Remove it, or "
      "set it to 1.")


def keras_3_was_used():
  assert not hasattr(stock.layers, "dense")
  import tf1ps.v1 as tf
  assert "the program used Keras 3 before it imported tf1ps.v1. Import tf1ps.v1 first" in refusal(
      tf.layers, "dense")


def hide_package(package):
  """Has Python not find a package from here on, in this process."""
  find = importlib.util.find_spec
  importlib.util.find_spec = lambda name, *args: None if name == package else find(name, *args)


def without_the_extra():
  hide_package("tf_keras")
  import tf1ps.v1 as tf
  assert refusal(tf.nn.rnn_cell, "LSTMCell") == (
      "tf.nn.rnn_cell.LSTMCell is not there: it needs the package tf_keras. Run: pip install "
      "'tf1ps[legacy]'.")


def main_of_a_program():
  import tf1ps.v1 as tf
  from tf1ps import session
  ended = []
  session.end_open_sessions = ended.append
  for main, code in ((lambda argv: None, None), (lambda argv: 3, 3), (lambda argv: 1 / 0, None)):
    try:
      tf.app.run(main, ["program"])
    except SystemExit as error:
      assert (error.code or None) == code
    except ZeroDivisionError as error:
      assert ended[2] is error
  assert ended[:2] == [None, None] and len(ended) == 3
