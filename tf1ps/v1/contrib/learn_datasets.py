"""`tf.contrib.learn.datasets`: MNIST."""

from __future__ import annotations

from tf1ps.v1.contrib import learn_base as base  # noqa: F401
from tf1ps.v1.examples.tutorials.mnist import input_data as mnist  # noqa: F401

__path__ = []  # legacy programs import datasets.mnist as a module
