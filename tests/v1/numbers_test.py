"""Numbers and names are those of TensorFlow 1.15: the expected ones were computed there."""
from __future__ import annotations

import json

import pytest

from tests.v1 import layer_tasks

# {case: (names of its variables, checksums of its outputs and of what it changes)}
EXPECTED = {
  "dense": (["dense/kernel", "dense/bias"], [0.95116]),
  "two dense": (["dense/kernel", "dense/bias", "out/kernel", "out/bias"], [1.734226]),
  "conv2d": (["conv2d/kernel", "conv2d/bias"], [2.984043]),
  "pooling": (["conv2d/kernel", "conv2d/bias"], [5.727218]),
  "batch normalization, training": (["batch_normalization/gamma", "batch_normalization/beta",
    "batch_normalization/moving_mean", "batch_normalization/moving_variance"], [0.581366, 0.823554,
    0.714131]),
  "batch normalization": (["batch_normalization/gamma", "batch_normalization/beta",
    "batch_normalization/moving_mean", "batch_normalization/moving_variance"], [-0.398353,
    0.830048, 0.717044]),
  "batch normalization of vectors": (["batch_normalization/gamma", "batch_normalization/beta",
    "batch_normalization/moving_mean", "batch_normalization/moving_variance"], [0.564142, 0.824053,
    0.714766]),
  "dropout, training": ([], [0.026685]),
  "dropout": ([], [0.184641]),
  "LSTM": (["rnn/lstm_cell/kernel", "rnn/lstm_cell/bias"], [0.780215, 2.446884, 1.007617]),
  "basic LSTM": (["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"], [0.892703, 2.539771,
    1.136017]),
  "GRU": (["rnn/gru_cell/gates/kernel", "rnn/gru_cell/gates/bias",
    "rnn/gru_cell/candidate/kernel", "rnn/gru_cell/candidate/bias"], [0.516461, 0.619703]),
  "layers of LSTM": (["rnn/multi_rnn_cell/cell_0/lstm_cell/kernel",
    "rnn/multi_rnn_cell/cell_0/lstm_cell/bias", "rnn/multi_rnn_cell/cell_1/lstm_cell/kernel",
    "rnn/multi_rnn_cell/cell_1/lstm_cell/bias"], [1.158655, 2.374541, 1.128634, 3.815326,
    1.446819]),
  "static": (["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"], [0.517169, 0.958025,
    1.136017, 2.539771, 1.136017]),
  "bidirectional": (["bidirectional_rnn/fw/lstm_cell/kernel",
    "bidirectional_rnn/fw/lstm_cell/bias", "bidirectional_rnn/bw/lstm_cell/kernel",
    "bidirectional_rnn/bw/lstm_cell/bias"], [0.990289, 0.344114, 2.799963, 1.208637, 1.32742,
    0.778558]),
  "stack": (["stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/lstm_cell/kernel",
    "stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/lstm_cell/bias",
    "stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/lstm_cell/kernel",
    "stack_bidirectional_rnn/cell_0/bidirectional_rnn/bw/lstm_cell/bias",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/gru_cell/gates/kernel",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/gru_cell/gates/bias",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/gru_cell/candidate/kernel",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/gru_cell/candidate/bias",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/gates/kernel",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/gates/bias",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/candidate/kernel",
    "stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/gru_cell/candidate/bias"], [0.255619,
    2.745202, 1.084507, 0.374504, 1.11839, 0.595421, 0.333293]),
  "slim.conv2d": (["Conv/weights", "Conv/BatchNorm/beta", "Conv/BatchNorm/moving_mean",
    "Conv/BatchNorm/moving_variance"], [1.177071, 0.757098, 0.679409]),
  "slim.batch_norm": (["BatchNorm/gamma", "BatchNorm/beta", "BatchNorm/moving_mean",
    "BatchNorm/moving_variance"], [0.729402, 0.559582, 1.282796]),
  "slim.batch_norm of vectors": (["BatchNorm/beta", "BatchNorm/moving_mean",
    "BatchNorm/moving_variance"], [0.720099, 0.559631, 1.282982]),
  "fully_connected": (["fully_connected/weights", "fully_connected/biases"], [6.034108]),
  "layer_norm": (["LayerNorm/beta", "LayerNorm/gamma"], [0.511677]),
  "embed_sequence": (["EmbedSequence/embeddings"], [0.802138]),
  "embed_sequence, unique": (["EmbedSequence/embeddings"], [0.877833]),
  "optimize_loss": (["fully_connected/weights", "fully_connected/biases", "global_step",
    "OptimizeLoss/learning_rate", "OptimizeLoss/beta1_power", "OptimizeLoss/beta2_power",
    "OptimizeLoss/fully_connected/weights/Adam", "OptimizeLoss/fully_connected/weights/Adam_1",
    "OptimizeLoss/fully_connected/biases/Adam", "OptimizeLoss/fully_connected/biases/Adam_1"], [
    0.89422]),
  "create_train_op": (["fully_connected/weights", "fully_connected/biases", "global_step"], [
    0.89422]),
  "sequence_loss": ([], [1.504889]),
  "sequence_loss by step": ([], [1.922426]),
  "sequence_loss, summed": ([], [1.989397]),
  "tile_batch": ([], [-0.002565, 0.320714]),
  "hardmax": ([], [0.375]),
  "transpose_batch_time": ([], [-0.033239]),
  "AdamW": (["dense", "sparse", "beta1_power", "beta2_power", "dense/AdamW", "dense/AdamW_1",
    "sparse/AdamW", "sparse/AdamW_1"], [0.530072, 0.731346]),
  "MomentumW": (["dense", "sparse", "dense/MomentumW", "sparse/MomentumW"], [0.594923, 0.696906]),
  "weight decay": (["dense", "sparse", "dense/Adagrad", "sparse/Adagrad"], [0.624563, 0.762487]),
  "tables": ([], [4.333333, 8.5, 3.166667, 1.166667, 0.5]),
}


@pytest.fixture(scope="module")
def outcomes(forks):
  task = forks.start("layers", layer_tasks.show_all)
  assert task.wait() == 0, task.output
  line, = [line for line in task.lines if line.startswith("cases: ")]
  return json.loads(line[len("cases: "):])


@pytest.mark.slow
def test_every_case_is_here(outcomes):
  assert sorted(outcomes) == sorted(EXPECTED)


@pytest.mark.parametrize("case", sorted(EXPECTED))
def test_as_on_tensorflow_1_15(case, outcomes):
  names, sums = outcomes[case]
  expected_names, expected_sums = EXPECTED[case]
  assert names == expected_names
  assert sums == pytest.approx(expected_sums, rel=1e-5, abs=3e-6)
