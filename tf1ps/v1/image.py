"""`tf.image`, with names and arguments from before TensorFlow 1.0."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace
from tf1ps.v1 import renamed as _renamed
from tf1ps.v1.old_orders import resize_images  # noqa: F401

__getattr__, __dir__ = _namespace.overlay(__name__, tf.image, gone=_renamed.finder("image"))
