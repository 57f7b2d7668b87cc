from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import autotuning, shard

pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")
TUNES = hasattr(tf.data.Options(), "autotune")


def enabled(dataset):
  return dataset.options().autotune.enabled if TUNES else False


def test_nothing_that_is_made_of_it_is_tuned():
  dataset = autotuning.without(tf.data.Dataset.range(3)).map(lambda x: x + 1).prefetch(1)
  assert enabled(dataset) is False


def test_a_share_is_not_tuned():
  share = shard.Shard(mode="train", index=0, count=2, batch_size=1)
  assert enabled(share.dataset(tf.data.Dataset.range(3))) is False


@pytest.mark.skipif(not TUNES, reason="TensorFlow 1.15 has no such option")
def test_what_the_program_says_later_wins():
  options = tf.data.Options()
  options.autotune.enabled = True
  assert enabled(autotuning.without(tf.data.Dataset.range(3)).with_options(options)) is True
