"""`tf.contrib.layers`, by the package tf_slim."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf.nn": "safe_embedding_lookup_sparse",
      "tf1ps.v1.contrib.embeddings": "embed_sequence",
    },
    libraries=["tf_slim.layers"],
    path="python.layers",
    advice="the feature columns are in tf.feature_column, the rest in TensorFlow 1.15 only")
