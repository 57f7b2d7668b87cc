"""`tf.contrib.metrics`, by the package tf_slim."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={"tf": "confusion_matrix",
           "tf.sets": "set_difference=difference set_intersection=intersection set_size=size "
                      "set_union=union"},
    libraries=["tf_slim.metrics"],
    advice="use tf.metrics")
