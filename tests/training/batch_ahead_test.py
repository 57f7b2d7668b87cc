from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.training import batch_ahead


def test_batches_come_in_order_whole_and_one_may_be_read_ahead():
  with tf.Graph().as_default(), tf.Session() as session:
    data = tf.data.Dataset.from_tensor_slices({"x": np.arange(10.0, dtype=np.float32)}).batch(4)
    features = tf.data.make_one_shot_iterator(data).get_next()
    features["words"] = tf.sparse.from_dense(tf.reshape(features["x"] + 1, [-1, 1]))
    ahead = batch_ahead.BatchAhead()
    taken, labels = ahead.pass_through((features, None))
    assert labels is None and taken["x"].shape.as_list() == [None]
    assert isinstance(taken["words"], tf.SparseTensor)
    both = [taken["x"], taken["words"].values]
    assert [session.run(ahead.read), session.run(ahead.read)] == [4, 4]
    for expected, further in (([0, 1, 2, 3], 2), ([4, 5, 6, 7], None), ([8, 9], None)):
      x, words = session.run(both)
      assert x.tolist() == expected and (words - 1).tolist() == expected
      if further:
        assert session.run(ahead.read) == further
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(ahead.read)


def test_one_tensor_and_a_known_shape():
  with tf.Graph().as_default(), tf.Session() as session:
    ahead = batch_ahead.BatchAhead()
    x, _ = ahead.pass_through((tf.ones([3, 2]), None))
    assert x.shape.as_list() == [3, 2]
    assert session.run(ahead.read) == 3 and session.run(x).sum() == 6.0
