"""`tf.contrib.rnn`: the cells are in tf.nn.rnn_cell, the loops in tf.nn."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf1ps.v1.nn.rnn_cell":
          "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell LSTMCell "
          "LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper",
      "tf.nn": "static_rnn static_bidirectional_rnn static_state_saving_rnn",
      "tf1ps.v1.contrib.fused_cells": "LSTMBlockCell LSTMBlockFusedCell TimeReversedFusedRNN",
      "tf1ps.v1.contrib.sequences":
          "stack_bidirectional_dynamic_rnn stack_bidirectional_rnn transpose_batch_time",
    },
    advice="use a cell of tf.nn.rnn_cell; a checkpoint with another cell's variables needs "
           "TensorFlow 1.15")
