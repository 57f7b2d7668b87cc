from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.pipeline import graph_input, queue_runners, readers
from tf1ps.pipeline import shard as shard_lib

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def share(**settings):
  """The share of a test: two examples a batch, one epoch."""
  return shard_lib.Shard(**dict(dict(batch_size=2, epochs=1), **settings))


def as_they_are(records):
  return records


def batches(tensors, most=1000):
  """The batches until the end of the data, as lists."""
  found = []
  with tf.train.MonitoredSession() as session:
    while len(found) < most:
      found.append(tf.nest.map_structure(lambda value: value.tolist(), session.run(tensors)))
  return found


def records(tensors):
  return [record for batch in batches(tensors) for record in batch]


@pytest.fixture
def write(tmp_path):
  """Writes files; returns their names."""
  def write_all(*contents, suffix=".txt"):
    names = [tmp_path / ("%d%s" % (number, suffix)) for number in range(len(contents))]
    for name, content in zip(names, contents):
      name.write_bytes(content)
    return [str(name) for name in names]
  return write_all


@pytest.mark.parametrize("content, lines", [
    (b"a\nb\n", [b"a", b"b"]),
    (b"a\nb", [b"a", b"b"]),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"\xef\xbb\xbfa\nb\n", [b"a", b"b"]),
    (b"a\n\n\nb\n", [b"a", b"", b"", b"b"]),
    (b"\n", [b""]),
    (b"", []),
    (b"\xef\xbb\xbf", [b""]),
])
@pytest.mark.parametrize("compression, pack", [
    (None, bytes), ("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
def test_lines_of_odd_files(write, content, lines, compression, pack):
  files = write(pack(content), pack(b"c\n"))
  assert records(
    readers.text_line_reader(share(), files, as_they_are, compression=compression)
  ) == (lines + [b"c"])


@pytest.mark.parametrize("compression, pack", [(None, bytes), ("GZIP", gzip.compress)])
def test_header_lines_of_each_file_are_left_out_and_counted(graph, write, compression, pack):
  files = write(pack(b"\xef\xbb\xbfx,y\n1,2\n"), pack(b"x,y\n"), pack(b"x,y\n3,4\n5,6\n"))
  readers.text_line_reader(share(), files, as_they_are, header_lines=1, compression=compression)
  (keys, values), = graph_input.input_of(graph).record_sources
  # Without the thread that decodes: what it would take is taken here.
  reading = [runner for runner in graph.get_collection_ref(tf.GraphKeys.QUEUE_RUNNERS)
             if "batches" not in runner.name]
  graph.get_collection_ref(tf.GraphKeys.QUEUE_RUNNERS)[:] = reading
  found = batches([keys, values])
  assert [pair for keys, values in found for pair in zip(keys, values)] == [
    (("%s:%d" % (files[file], line)).encode(), text)
    for file, line, text in [(0, 2, b"1,2"), (2, 2, b"3,4"), (2, 3, b"5,6")]]


def test_several_members_in_one_compressed_file(write):
  files = write(gzip.compress(b"a\nb\n") + gzip.compress(b"c\n"))
  lines = readers.text_line_reader(share(), files, as_they_are, compression="GZIP")
  if tf.version.VERSION.startswith("1."):
    with pytest.raises(tf.errors.InvalidArgumentError, match="0.txt: a gzip file of several"):
      records(lines)
  else:
    assert records(lines) == [b"a", b"b", b"c"]


def test_batches_cross_files_and_epochs_and_the_last_is_what_is_left(write):
  files = write(b"1,2\n3,4\n5,6\n", b'7,"8,9"\n')
  decoded = readers.text_line_reader(
    share(epochs=2, batch_size=3), files,
    lambda lines: dict(zip("xy", tf.io.decode_csv(lines, [[0], [""]]))))
  assert decoded["x"].shape.as_list() == [None]
  assert [batch["x"] for batch in batches(decoded)] == [[1, 3, 5], [7, 1, 3], [5, 7]]


def test_drop_remainder_and_shapes_that_are_known(write):
  files = write(b"1\n2\n3\n")
  lines = readers.text_line_reader(share(), files, as_they_are, drop_remainder=True)
  assert lines.shape.as_list() == [2]
  endless = readers.text_line_reader(share(epochs=None), files, as_they_are)
  assert endless.shape.as_list() == [2]
  with tf.train.MonitoredSession() as session:
    assert [session.run(endless).tolist() for _ in range(3)] == [
      [b"1", b"2"], [b"3", b"1"], [b"2", b"3"]]
    assert session.run(lines).tolist() == [b"1", b"2"]
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(lines)


def numbered(write, files=5, lines=40):
  return write(*[b"".join(b"%d\n" % (100 * file + line) for line in range(lines))
                 for file in range(files)])


def test_several_readers_and_decoders_give_each_record_once_an_epoch(write):
  found = batches(readers.text_line_reader(
    share(batch_size=7, epochs=3), numbered(write), as_they_are, shuffle=16, num_readers=3,
    num_decoders=3, read_up_to=6))
  flat = [int(record) for batch in found for record in batch]
  assert sorted(flat) == sorted(3 * [100 * f + n for f in range(5) for n in range(40)])
  assert sorted(map(len, found)) == [5] + [7] * 85
  assert flat != sorted(flat)


def test_a_shuffle_of_one_file_mixes_within_its_buffer(write):
  found = [int(record) for record in records(readers.text_line_reader(
    share(), numbered(write, 1, 200), as_they_are, shuffle=50, read_up_to=10, seed=3))]
  assert sorted(found) == list(range(200)) and found != sorted(found)
  # Before the first record 50 others wait, and room for two reads is left.
  assert all(record <= place + 50 + 20 + 10 for place, record in enumerate(found))


@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_evaluation_sees_each_record_once_in_order(graph, write, mode):
  files = numbered(write, 3, 5)
  found = records(readers.text_line_reader(
    share(mode=mode, epochs=4), files, as_they_are, shuffle=8, num_readers=3, num_decoders=3))
  assert [len(runner.enqueue_ops)
          for runner in graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)] == [1, 1, 1]
  assert [int(record) for record in found] == [100 * f + n for f in range(3) for n in range(5)]


@pytest.mark.parametrize("index, wanted", [(0, [0, 1, 200, 201]), (1, [100, 101])])
def test_workers_divide_the_files(write, index, wanted):
  mine = share(index=index, count=2)
  found = records(readers.text_line_reader(mine, numbered(write, 3, 2), as_they_are))
  assert [int(record) for record in found] == wanted


@pytest.mark.parametrize("index", range(3))
def test_workers_divide_the_records_by_their_number_over_files_and_epochs(write, index):
  files = numbered(write, 2, 5)
  mine = share(index=index, count=3, epochs=2, policy="records")
  found = records(readers.text_line_reader(mine, files, as_they_are, read_up_to=2, num_readers=2))
  every = [100 * f + n for f in range(2) for n in range(5)] * 2
  assert [int(record) for record in found] == every[index::3]
  assert mine.divided == "records"
  shard_lib.check_asked(mine)


def test_fewer_files_than_workers(write):
  with pytest.raises(shard_lib.ShardError, match="2 workers cannot share 1 file"):
    readers.text_line_reader(share(count=2), write(b"a\n"), as_they_are)


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_tf_records(tmp_path, compression):
  name = str(tmp_path / "a.tfrecord")
  kinds = tf.io.TFRecordCompressionType
  options = tf.io.TFRecordOptions(getattr(kinds, compression or "NONE"))
  with tf.io.TFRecordWriter(name, options) as writer:
    for number in range(3):
      writer.write(tf.train.Example(features=tf.train.Features(feature={
        "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[number] * number)),
      })).SerializeToString())
  found = readers.tf_record_reader(
    share(), name, lambda values: tf.io.parse_example(values, {"x": tf.io.VarLenFeature(tf.int64)}),
    compression=compression)
  dense = tf.sparse.to_dense(found["x"])
  assert batches(dense) == [[[0], [1]], [[2, 2]]]


@pytest.mark.parametrize("compression, pack", [(None, bytes), ("ZLIB", zlib.compress)])
def test_fixed_length_records(write, compression, pack):
  files = write(pack(b"HHabcdefF"), pack(b"HHghiF"))
  found = readers.fixed_length_record_reader(
    share(), files, lambda values: tf.io.decode_raw(values, tf.uint8)[:, 0], record_bytes=3,
    header_bytes=2, footer_bytes=1, compression=compression)
  assert batches(found) == [[ord("a"), ord("d")], [ord("g")]]


def test_whole_files(write):
  files = write(b"one", b"", b"three\n")
  assert batches(readers.whole_file_reader(share(), files, as_they_are)) == [
    [b"one", b""],
    [b"three\n"],
  ]


def test_records_of_different_shapes_are_padded(write):
  files = write(b"1 2 3\n4\n5 6\n")

  def decode(lines):
    words = tf.sparse.to_dense(tf.string_split(lines), default_value="")
    return tf.string_to_number(words, tf.int32), tf.size(words, name="size")[tf.newaxis]

  found = readers.text_line_reader(share(), files, decode, pad=True)
  assert found[0].shape.as_list() == [None, None]
  assert batches(found) == [([[1, 2, 3], [4, 0, 0]], [3, 1]), ([[5, 6]], [2])]


def test_all_is_on_the_worker_under_tensorflow_s_setter(graph, write):
  setter = tf.train.replica_device_setter(
    cluster={"ps": ["a:1"], "worker": ["b:1"]}, worker_device="/job:worker/task:0")
  with tf.device(setter):
    readers.text_line_reader(
      share(policy="records", count=2, epochs=2), numbered(write), as_they_are
    )
  for op in graph.get_operations():
    # An operation on the counter of records has no device, but is where the counter is.
    assert op.device.startswith("/job:worker/task:0") or any(
      b"records_read" in group for group in op.colocation_groups()), op


@pytest.mark.parametrize("settings, error, message", [
    (dict(shuffle=0), ValueError, "shuffle must be an integer of at least 1, got 0"),
    (dict(header_lines=-1), ValueError, "header_lines must be an integer of at least 0, got -1"),
    (dict(num_readers=0), ValueError, "num_readers must be"),
    (dict(read_up_to=2.5), ValueError, "read_up_to must be an integer of at least 1, got 2.5"),
    (dict(compression="gz"), ValueError, "must be one of None, 'GZIP', 'ZLIB', got 'gz'"),
    (dict(decode=None), TypeError, "decode must be callable, got None"),
    (dict(decode=lambda lines: tf.size(lines)), ValueError, "its length; "
     "it returned a scalar"),
    (dict(decode=lambda lines: ()), ValueError, r"decode returned no tensor: \(\)"),
])
def test_bad_input_is_refused_when_the_graph_is_built(write, settings, error, message):
  settings = dict(dict(decode=as_they_are), **settings)
  with pytest.raises(error, match=message):
    readers.text_line_reader(share(), write(b"a\n"), **settings)


def test_a_session_that_ends_early_leaves_no_thread(write):
  lines = readers.text_line_reader(share(epochs=None), numbered(write), as_they_are, shuffle=4)
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    assert np.shape(session.run(lines)) == (2,)
    coordinator.request_stop()
    coordinator.join(threads, stop_grace_period_secs=harness.LIMIT)
  assert not any(thread.is_alive() for thread in threads)


def test_the_runners_of_this_package_know_where_a_bad_record_stands(write):
  files = write(b"1\n2\n", b"3\n4\nx\n6\n")
  numbers = readers.text_line_reader(
    share(), files, lambda lines: tf.io.decode_csv(lines, [[0]])[0]
  )
  with tf.Session() as session:
    session.run(tf.local_variables_initializer())
    coordinator = tf.train.Coordinator()
    queue_runners.start_queue_runners(session, coordinator)
    found = []
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"1\.txt:3: .*not a valid int32: x"):
      while True:
        found += session.run(numbers).tolist()
    assert found == [1, 2, 3, 4]
    coordinator.request_stop()
