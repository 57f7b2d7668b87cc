"""What tests of tf.contrib run as processes."""
from __future__ import annotations

import os
import types

import numpy as np
import tensorflow.compat.v1 as stock

from tests.v1.namespace_tasks import hide_package, refusal


def every_name():
  """Each name that a namespace lists is there."""
  import tf1ps.v1 as tf
  from tf1ps import compat
  for name in compat.PACKAGES:
    namespace = getattr(tf.contrib, name)
    assert dir(namespace) or name == "distributions", name
    for listed in dir(namespace):
      getattr(namespace, listed)
  assert {"arg_scope", "get_or_create_global_step", "nest"} <= set(dir(tf.contrib.framework))
  assert callable(tf.contrib.framework.arg_scope)  # not the module of that name
  assert {"HParams", "GreedyLoadBalancingStrategy", "create_train_op"} <= set(
      dir(tf.contrib.training))
  assert {"conv2d", "learning", "losses", "metrics"} <= set(dir(tf.contrib.slim))
  assert {"fully_connected", "xavier_initializer"} <= set(dir(tf.contrib.layers))
  assert {"embed_sequence", "safe_embedding_lookup_sparse"} <= set(dir(tf.contrib.slim))
  assert tf.contrib.training.RandomStrategy(3)(tf.constant(1).op) in range(3)
  assert tf.contrib.util.constant_value(tf.constant(3)) == 3
  assert callable(tf.contrib.keras.layers.Dense) and tf.contrib.distributions.Normal


def every_way_to_import():
  import tf1ps.v1.contrib.slim as slim
  from tf1ps.v1.contrib import keras as contrib_keras
  from tf1ps.v1.contrib.framework.python.ops.variables import get_or_create_global_step
  from tf1ps.v1.contrib.layers.python.layers import initializers, utils
  from tf1ps.v1.contrib.learn.python.learn.datasets import base
  from tf1ps.v1.contrib.learn.python.learn.datasets.mnist import read_data_sets
  from tf1ps.v1.contrib.nccl import all_sum
  from tf1ps.v1.contrib.nccl.python.ops import nccl_ops
  from tf1ps.v1.contrib.slim import nets
  from tf1ps.v1.contrib.slim.nets import vgg
  from tf1ps.v1.contrib.slim.python.slim import learning
  from tf1ps.v1.contrib.slim.python.slim.learning import train
  from tf1ps.v1.contrib.training.python.training.hparam import HParams
  from tf1ps.v1.estimator.python.canned.head import _Head
  assert slim.learning is learning and learning.train is train
  assert nccl_ops.all_sum is all_sum and callable(contrib_keras.layers.Dense)
  assert HParams(a=1).a == 1 and isinstance(_Head, type)
  assert callable(read_data_sets) and base.Datasets(1, 2, test=3).test == 3
  assert base.maybe_download(os.path.basename(__file__), os.path.dirname(__file__), "") == __file__
  assert nets.vgg is vgg and callable(vgg.vgg_16)
  assert callable(initializers.xavier_initializer) and utils.collect_named_outputs
  assert get_or_create_global_step().op.name == "global_step"


def what_is_nowhere():
  import tf1ps.v1 as tf
  assert refusal(tf.contrib, "bigtabel") == (
      "tf.contrib.bigtabel is not there: TensorFlow 2 has no tf.contrib, and tf1ps.v1 has only "
      "part of it. Write it anew, or stay with TensorFlow 1.15.")
  assert refusal(tf.contrib.layers, "scattered_embedding_column") == (
      "tf.contrib.layers.scattered_embedding_column is not there: other feature columns are in "
      "tf.feature_column, the rest in TensorFlow 1.15 only.")
  from tf1ps.v1.contrib.learn.python.learn.datasets import base
  try:
    base.maybe_download("absent.gz", "/nowhere", "http://example.com/absent.gz")
    raise AssertionError("it was found")
  except FileNotFoundError as error:
    assert "/nowhere has no file absent.gz. tf1ps downloads nothing: put it there" in str(error)
  assert "Write the decoder with tf.while_loop" in refusal(
      tf.contrib.seq2seq, "BeamSearchDecoder")
  assert "use a cell of tf.nn.rnn_cell" in refusal(tf.contrib.rnn, "GLSTMCell")
  assert refusal(tf.contrib.distributions, "VectorDiffeomixture") == (
      "tf.contrib.distributions.VectorDiffeomixture is not there: install the package "
      "tensorflow-probability.")
  hide_package("tensorflow_probability")
  assert "it needs the package tensorflow-probability. Run: pip install" in refusal(
      tf.contrib.distributions, "MultivariateNormalDiag")


def packages_without_heirs():
  """They can be imported; their use is refused."""
  import tf1ps.v1.contrib.graph_editor as ge
  from tf1ps.v1 import contrib
  from tf1ps.v1.contrib import ffmpeg
  from tf1ps.v1.contrib.cudnn_rnn import CudnnLSTM
  from tf1ps.v1.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
  assert not isinstance(3, CudnnLSTM)
  for use, advice in (
      (lambda: CudnnLSTM(1, 2), "tf.contrib.cudnn_rnn.CudnnLSTM is not there: use a cell of"),
      (lambda: ge.reroute.swap_ts([], []), "tf.contrib.graph_editor.reroute.swap_ts is not there: "
       "use tf.import_graph_def with input_map."),
      (lambda: ffmpeg.decode_audio(1), "use the package tensorflow-io."),
      (lambda: types.new_class("Own", (cudnn_rnn_ops.CudnnGRU,)), "CudnnGRU is not there"),
      (lambda: contrib.specs.create_net(), "TensorFlow 1.15 is the last with it.")):
    try:
      use()
      raise AssertionError(advice)
    except AttributeError as error:
      assert advice in str(error), error
  assert not hasattr(contrib, "rpc")  # the program asks
  try:
    from tf1ps.v1.contrib import solvers
    raise AssertionError(solvers)
  except ImportError as error:
    assert "tf.contrib.solvers is not there" in str(error)


def without_the_extra():
  hide_package("tf_slim")
  import tf1ps.v1 as tf
  assert refusal(tf.contrib.slim, "conv2d") == (
      "tf.contrib.slim.conv2d is not there: it needs the package tf_slim. Run: pip install "
      "'tf1ps[legacy]'.")
  assert tf.contrib.framework.get_or_create_global_step is stock.train.get_or_create_global_step
  assert "HParams" in dir(tf.contrib.training)


def slim_trains(folder):
  """slim's loops take tf1ps' Supervisor and session; prints the last loss."""
  import tf1ps
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib import slim, training
  assert slim.learning.supervisor.Supervisor is tf1ps.Supervisor
  inputs = tf.constant([[1., 2.], [3., 4.], [5., 7.]])
  with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(1e-6)):
    outputs = slim.fully_connected(inputs, 1, activation_fn=None, normalizer_fn=slim.batch_norm,
                                   weights_initializer=tf.ones_initializer())
  tf.losses.mean_squared_error([[1.], [2.], [3.]], outputs)
  train_op = slim.learning.create_train_op(
      slim.losses.get_total_loss(), tf.train.GradientDescentOptimizer(0.1))
  loss = slim.learning.train(train_op, folder, number_of_steps=30, save_summaries_secs=0)
  assert tf.train.latest_checkpoint(folder).endswith("-30")
  print("loss %.4f" % loss)
  assert training.train.__globals__["monitored_session"].MonitoredTrainingSession is (
      tf1ps.MonitoredTrainingSession)


def hyperparameters():
  from tf1ps.v1.contrib.training import HParams

  def parameters():
    return HParams(steps=3, rates=[1.0, 2], name="x", is_quick=True)

  one = parameters()
  assert one.parse("steps=4,rates=[4, 5],name=a b,is_quick=false") is one
  assert one.values() == {"steps": 4, "rates": [4.0, 5.0], "name": "a b", "is_quick": False}
  assert one.to_json(sort_keys=True) == (
      '{"is_quick": false, "name": "a b", "rates": [4.0, 5.0], "steps": 4}')
  assert one.override_from_dict({"steps": 9}).steps == 9
  assert one.parse_json('{"steps": 2}').steps == 2
  one.add_hparam("more", 0.5)
  one.set_hparam("more", 2)
  assert one.more == 2.0 and "more" in one and "less" not in one and one.get("less", 7) == 7
  one.del_hparam("more")
  assert "more" not in one and not hasattr(one, "more")
  for text in ("steps=x", "absent=1", "steps=1.5", "steps=1,steps=2", "=", "steps=[1,2]",
               "rates=3"):
    assert_refused(lambda: parameters().parse(text))  # noqa: B023
  for name, value in (("steps", "s"), ("steps", 1.5), ("steps", True), ("rates", 3),
                      ("is_quick", 1), ("name", 3)):
    assert_refused(lambda: parameters().set_hparam(name, value))  # noqa: B023
  assert_refused(lambda: one.add_hparam("steps", 1))


def assert_refused(call):
  try:
    call()
  except ValueError:
    return
  raise AssertionError("it was accepted")


def elements_of_lists():
  """1.15 cannot set an element by its place."""
  from tf1ps.v1.contrib.training import HParams
  one = HParams(rates=[1.0, 2])
  assert one.parse("rates[1]=9").rates == [1.0, 9.0]
  assert_refused(lambda: one.parse("rates[7]=1"))


def datasets():
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib import data
  numbers = tf.data.Dataset.range(7)
  whole = numbers.apply(data.batch_and_drop_remainder(3))
  assert whole.output_shapes.as_list() == [3]
  padded = numbers.map(lambda n: tf.fill([n], n)).apply(
      data.padded_batch_and_drop_remainder(2, [None]))
  mixed = numbers.apply(data.sloppy_interleave(
      lambda n: tf.data.Dataset.from_tensors(n).repeat(2), cycle_length=2))
  elements = [dataset.make_one_shot_iterator().get_next() for dataset in (whole, padded, mixed)]
  with tf.Session() as session:
    assert session.run(elements[0]).tolist() == [0, 1, 2]
    assert session.run(elements[1]).tolist() == [[0], [1]]
    assert sorted(session.run(elements[2]) for _ in range(14)) == sorted([*range(7)] * 2)


def exports(folder):
  """session_bundle's exporter writes a SavedModel, which a predictor loads."""
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib import predictor
  from tf1ps.v1.contrib.session_bundle import exporter
  x = tf.placeholder(tf.float32, [None, 2], "x")
  step = tf.train.create_global_step()
  with tf.device("/device:GPU:7"):  # no loader has it, nor places softly
    w = tf.get_variable("w", [2, 1], initializer=tf.ones_initializer())
  y = tf.matmul(x, w)
  one = exporter.Exporter(tf.train.Saver([w, step]))
  one.init(tf.get_default_graph().as_graph_def(), named_graph_signatures={
    "inputs": exporter.generic_signature({"x": x}), "outputs": exporter.generic_signature({"y": y}),
    "scores": exporter.classification_signature(x, scores_tensor=y)},
    default_graph_signature=exporter.regression_signature(x, y))
  with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
    session.run(tf.global_variables_initializer())
    following = tf.assign_add(step, 1)
    tf.get_default_graph().finalize()
    for _ in range(3):
      session.run(following)
      path = one.export(folder, step, session, exports_to_keep=2)
      try:
        one.export(folder, step, session)
        raise AssertionError("it was written over")
      except ValueError as error:
        assert "exists already: remove it" in str(error)
  assert path == os.path.join(folder, "00000003")
  assert sorted(os.listdir(folder)) == ["00000002", "00000003"]
  for key, inputs, output in ((None, "inputs", "outputs"), ("scores", "inputs", "scores")):
    predict = predictor.from_saved_model(path, key)
    assert predict({inputs: [[1.0, 2.0]]}) == {output: [[3.0]]}
  for call, said in ((lambda: predictor.from_saved_model(path, "no"), "has no signature no"),
                     (lambda: predict({"z": 1}), "has no input z. Its inputs are inputs")):
    try:
      call()
      raise AssertionError(said)
    except ValueError as error:
      assert said in str(error)


def losses_of_steps():
  """The losses of legacy_seq2seq, and those whose arguments have changed places."""
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib import legacy_seq2seq, nn
  logits = [tf.constant([[1.0, 2.0], [0.0, 0.5]]), tf.constant([[3.0, 1.0], [1.0, 1.0]])]
  targets = [tf.constant([1, 0]), tf.constant([0, 1])]
  weights = [tf.constant([1.0, 1.0]), tf.constant([1.0, 0.0])]
  outputs, _ = legacy_seq2seq.rnn_decoder(
    logits, tf.zeros([2, 2]), tf.nn.rnn_cell.BasicRNNCell(2), lambda output, step: output * step)
  dense = tf.constant([[0.0, 1.0], [1.0, 0.0]])
  cases = [
    legacy_seq2seq.sequence_loss_by_example(logits, targets, weights),
    legacy_seq2seq.sequence_loss_by_example(logits, targets, weights, False),
    legacy_seq2seq.sequence_loss(logits, targets, weights),
    nn.deprecated_flipped_softmax_cross_entropy_with_logits(logits[0], dense),
    nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits(logits[0], targets[0]),
    nn.deprecated_flipped_sigmoid_cross_entropy_with_logits(logits[0], dense)[0]]
  assert len(outputs) == 2 and len(tf.trainable_variables()) == 2
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    values = session.run(cases)
  expected = [  # TensorFlow 1.15's
    [0.220095, 0.974077], [0.44019, 0.974077], 0.597086, [0.313262, 0.974077],
    [0.313262, 0.974077], [1.313262, 0.126928]]
  for value, right in zip(values, expected):
    np.testing.assert_allclose(value, right, rtol=1e-5)
