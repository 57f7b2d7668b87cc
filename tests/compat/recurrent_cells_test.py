from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import recurrent_cells

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

BATCH, DEPTH, UNITS = 2, 3, 4


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_in_numpy(kind):
  rng = np.random.RandomState(2)
  x, state = rng.randn(BATCH, DEPTH), rng.randn(2, BATCH, UNITS)
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(recurrent_cells, kind)(UNITS, "cell")
    cell.build(DEPTH)
    cell.build(DEPTH)  # once is enough
    shapes = {v.op.name: v.shape.as_list() for v in tf.global_variables()}
    before = recurrent_cells.LSTMState(*map(tf.constant, state.astype(np.float32))) if (
      kind == "LSTMCell") else tf.constant(state[0].astype(np.float32))
    values = [rng.randn(*v.shape.as_list()) for v in cell.variables]
    session.run(tf.global_variables_initializer())
    biases = [session.run(v)[0] for v in cell.variables[1::2]]
    session.run([v.assign(value) for v, value in zip(cell.variables, values)])
    outputs, after = session.run(cell(tf.constant(x.astype(np.float32)), before))

  def sigmoid(z):
    return 1 / (1 + np.exp(-z))

  if kind == "LSTMCell":
    assert shapes == {"cell/kernel": [7, 16], "cell/bias": [16]} and biases == [0.0]
    i, j, f, o = np.split(np.hstack([x, state[1]]) @ values[0] + values[1], 4, 1)
    c = state[0] * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    np.testing.assert_allclose(after.c, c, atol=1e-5)
    np.testing.assert_allclose(after.h, h, atol=1e-5)
  else:
    assert shapes == {"cell/gates/kernel": [7, 8], "cell/gates/bias": [8],
                      "cell/candidate/kernel": [7, 4], "cell/candidate/bias": [4]}
    assert biases == [1.0, 0.0]
    r, u = np.split(sigmoid(np.hstack([x, state[0]]) @ values[0] + values[1]), 2, 1)
    candidate = np.tanh(np.hstack([x, r * state[0]]) @ values[2] + values[3])
    h = u * state[0] + (1 - u) * candidate
    np.testing.assert_allclose(after, h, atol=1e-5)
  np.testing.assert_allclose(outputs, h, atol=1e-5)


@pytest.mark.skipif(tf.VERSION >= "2", reason="TensorFlow 2 has no cells to compare with")
@pytest.mark.parametrize("ours, stock", [("LSTMCell", "BasicLSTMCell"), ("GRUCell", "GRUCell")])
def test_what_tensorflow_1_trained_can_be_restored(ours, stock, tmp_path):
  x = np.random.RandomState(0).randn(BATCH, DEPTH).astype(np.float32)
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(tf.nn.rnn_cell, stock)(UNITS, name="cell")
    outputs, _ = cell(tf.constant(x), cell.zero_state(BATCH, tf.float32))
    session.run(tf.global_variables_initializer())
    expected = session.run(outputs)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(recurrent_cells, ours)(UNITS, "cell")
    cell.build(DEPTH)
    outputs, _ = cell(tf.constant(x), cell.zero_state(BATCH))
    tf.train.Saver().restore(session, path)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


def test_a_cell_without_units_is_refused():
  with pytest.raises(ValueError, match="at least one unit, got 0"):
    recurrent_cells.LSTMCell(0)
