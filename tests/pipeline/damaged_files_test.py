from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import damaged_files, datasets
from tf1ps.pipeline.shard import Shard


def test_the_damaged_file_is_named(tmp_path):
  for name in ("a", "b", "c"):
    with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
      for number in range(3):
        writer.write(b"record %d" % number)
  content = bytearray((tmp_path / "b").read_bytes())
  content[-5] ^= 1  # in the last record
  (tmp_path / "b").write_bytes(bytes(content))
  with tf.Graph().as_default():
    tf.train.get_or_create_global_step()
    batch = datasets.tf_record_dataset(
      Shard(batch_size=2, epochs=1), str(tmp_path / "*"), tf.identity)
    with pytest.raises(tf.errors.DataLossError) as error:
      with tf1ps.MonitoredTrainingSession() as session:
        while not session.should_stop():
          session.run(batch)
  assert error.value.message.startswith("%s: corrupted record at " % (tmp_path / "b"))


def test_another_error_stays_as_it_is(monkeypatch):
  monkeypatch.setattr(damaged_files, "_graphs", [])  # those of other tests
  for error in (ValueError("no"), tf.errors.DataLossError(None, None, "of nothing that is known")):
    assert damaged_files.explain(error) is error
