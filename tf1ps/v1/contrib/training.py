"""`tf.contrib.training`: HParams written anew, load balancing of tf1ps, the loops of tf_slim."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    drop_ins={"placement": ["GreedyLoadBalancingStrategy", "byte_size_load_fn"]},
    heirs={
      "tf1ps.v1.contrib.hparams": "HParams parse_values",
      "tf.train": "checkpoints_iterator",
    },
    libraries=["tf_slim.training.training", "tf_slim.training.evaluation"],
    advice="use the methods of tf.data.Dataset",
    path="python.training", files={
      "evaluation": "tf_slim.training.evaluation", "hparam": "tf1ps.v1.contrib.hparams",
      "training": "tf_slim.training.training"})
