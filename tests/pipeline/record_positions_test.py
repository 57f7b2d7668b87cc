from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import datasets
from tf1ps.pipeline import record_positions as positions
from tf1ps.pipeline.graph_input import InputFile, input_of
from tf1ps.pipeline.shard import Shard


def files(*paths, numbered=True):
  return [InputFile(path, numbered, None) for path in paths]


@pytest.mark.parametrize("source, number, text", [
  (0, 0, "a:1"), (1, 16, "b:17"), (2, 5, "c"), ((2 ** 14 - 1) * 2 ** 32 + 1, 2 ** 31 - 1,
                                              "b:2147483648")])
def test_a_position_keeps_source_and_number(source, number, text):
  with tf.Graph().as_default() as graph, tf.Session() as session:
    assert positions.add_files(files("a", "b")) == 0
    assert positions.add_files(files("c", numbered=False)) == 2
    assert [file.path for file in input_of(graph).files] == ["a", "b", "c"]
    position = positions.first_position(tf.constant(source, tf.int64)) + number
    value, *parts = session.run(
      [position, positions.source_of(position), positions.number_of(position)])
  assert parts == [source, number]
  assert positions.position_text(graph, value) == text


def test_too_many_files_are_refused():
  with tf.Graph().as_default(), pytest.raises(ValueError, match="262145 files are too many"):
    positions.add_files(files(*["a"] * (positions.MAX_FILES + 1)))


@pytest.mark.slow
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


def test_another_error_stays_as_it_is():
  for error in (ValueError("no"), tf.errors.DataLossError(None, None, "of nothing that is known")):
    assert positions.explain_damage(error, tf.Graph()) is error
