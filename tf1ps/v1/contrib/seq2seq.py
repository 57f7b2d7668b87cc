"""`tf.contrib.seq2seq`: the loss of sequences; decoders are in no library of today."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={"tf1ps.v1.contrib.sequences": "hardmax sequence_loss tile_batch"},
    advice="no library of today has it. Write the decoder with tf.while_loop, or stay with "
           "TensorFlow 1.15")
