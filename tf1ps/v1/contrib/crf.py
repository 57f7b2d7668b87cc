"""`tf.contrib.crf`, written anew: linear chains of tags."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={"tf1ps.v1.contrib.chains":
           "crf_decode crf_log_likelihood crf_log_norm crf_sequence_score viterbi_decode"},
    advice="use crf_log_likelihood and crf_decode")
