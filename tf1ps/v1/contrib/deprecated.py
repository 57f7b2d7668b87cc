"""`tf.contrib.deprecated`: the summaries from before TensorFlow 1.0."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={"tf1ps.v1": "audio_summary histogram_summary image_summary merge_all_summaries "
                       "merge_summary scalar_summary"})
