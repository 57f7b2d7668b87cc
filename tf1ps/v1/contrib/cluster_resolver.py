"""`tf.contrib.cluster_resolver`: its classes are in tf.distribute."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    drop_ins={"v1.refused_tpu": ["TPUClusterResolver"]},
    heirs={"tf.distribute.cluster_resolver":
           "ClusterResolver SimpleClusterResolver TFConfigClusterResolver UnionResolver "
           "GCEClusterResolver KubernetesClusterResolver "
           "SlurmClusterResolver"})
