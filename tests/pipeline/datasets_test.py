from __future__ import annotations

import gzip
import logging
import zlib

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import bad_records, batch_decoding, datasets, graph_input, iterators
from tf1ps.pipeline.shard import Shard, ShardError, Sources

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def once(batch_size=3, **kwargs):
  return Shard(batch_size=batch_size, epochs=1, **kwargs)


def numbers(lines):
  return tf.strings.to_number(lines, tf.int32)


def same(values):
  return tf.identity(values)


def drawn(tensors, most=50):
  """Every batch, as lists, up to the end or the first error; that comes last."""
  found = []
  with tf.Session() as session:
    session.run(iterators.iterator_initializers(tf.get_default_graph()))
    while len(found) < most:
      try:
        values = session.run(tensors)
      except tf.errors.OutOfRangeError:
        return found
      except tf.errors.OpError as error:
        return found + [error]
      found.append(tf.nest.map_structure(lambda value: value.tolist(), values))
  return found


@pytest.fixture
def write(tmp_path):
  def write_file(name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(tmp_path / name)
  return write_file


def test_lines_of_several_files_in_order(write, tmp_path):
  write("a.txt", "1\n2\n3\n4\n")
  write("b.txt", "")
  write("c.txt", "5\n6")
  assert drawn(datasets.text_line_dataset(once(), str(tmp_path / "*.txt"), numbers)) == [
    [1, 2, 3], [4, 5, 6]]


@pytest.mark.slow
def test_header_lines_carriage_returns_and_a_byte_order_mark(write):
  path = write("a.csv", b"\xef\xbb\xbfx,y\r\n1,2\r\n3,4\r\n")
  decode = lambda lines: tf.io.decode_csv(lines, [[0], [0]])  # noqa: E731
  assert drawn(datasets.text_line_dataset(once(), path, decode, header_lines=1)) == [
    [[1, 3], [2, 4]]
  ]
  again = write("b.csv", b"\xef\xbb\xbf1\n\xef\xbb\xbf2\n")
  assert drawn(datasets.text_line_dataset(once(), again, same)) == [[b"1", b"\xef\xbb\xbf2"]]


def test_separators_in_quotes(write):
  path = write("a.csv", '"a,b",1\nc,"2"\n')
  decode = lambda lines: dict(zip("xy", tf.io.decode_csv(lines, [[""], [0]])))  # noqa: E731
  assert drawn(datasets.text_line_dataset(once(), path, decode)) == [
    {"x": [b"a,b", b"c"], "y": [1, 2]}
  ]


@pytest.mark.parametrize("name, pack, compression", [
  ("a.gz", gzip.compress, None), ("a.txt", gzip.compress, "GZIP"), ("a.txt", zlib.compress, "ZLIB"),
  ("a.gz", lambda content: content, "")])
def test_compressed_files(write, name, pack, compression):
  path = write(name, pack(b"1\n2\n"))
  assert drawn(datasets.text_line_dataset(once(), path, numbers, compression=compression)) == [
    [1, 2]
  ]


def tf_record_file(path, values):
  with tf.io.TFRecordWriter(path) as writer:
    for value in values:
      writer.write(value)
  return path


@pytest.mark.slow
def test_tf_records_with_dense_and_sparse_features(tmp_path):
  def example(x, words):
    return tf.train.Example(features=tf.train.Features(feature={
      "x": tf.train.Feature(int64_list=tf.train.Int64List(value=[x])),
      "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=words))})).SerializeToString()

  path = tf_record_file(str(tmp_path / "a"), [example(1, [b"a", b"b"]), example(2, [])])
  features = {"x": tf.io.FixedLenFeature([], tf.int64), "words": tf.io.VarLenFeature(tf.string)}
  batch = datasets.tf_record_dataset(
    once(), path, lambda values: tf.io.parse_example(values, features)
  )
  batch["words"] = tf.sparse.to_dense(batch["words"], "")
  assert drawn(batch) == [{"x": [1, 2], "words": [[b"a", b"b"], [b"", b""]]}]


@pytest.mark.slow
def test_records_of_a_fixed_length(write):
  path = write("a", b"HH" + bytes(range(6)) + b"F")
  decode = lambda values: tf.io.decode_raw(values, tf.uint8)  # noqa: E731
  assert drawn(datasets.fixed_length_record_dataset(once(2), path, decode, 2, 2, 1)) == [
    [[0, 1], [2, 3]], [[4, 5]]]
  error = drawn(datasets.fixed_length_record_dataset(once(2), path, decode, 4))[-1]
  assert path in error.message and "not an exact multiple" in error.message


def test_whole_files(write, tmp_path):
  for name, content in (("a", "one\n"), ("b", ""), ("c", "three")):
    write(name, content)
  assert drawn(datasets.whole_file_dataset(once(2), str(tmp_path / "*"), same)) == [
    [b"one\n", b""], [b"three"]]


def test_shuffled_records_are_each_there_once_an_epoch(write, tmp_path):
  for index in range(3):
    write("%d" % index, "\n".join(str(100 * index + number) for number in range(20)))
  batch = datasets.text_line_dataset(
    Shard(batch_size=7, epochs=2), str(tmp_path / "*"), numbers, shuffle=30)
  batches = drawn(batch)
  every = [100 * index + number for index in range(3) for number in range(20)]
  assert [len(one) for one in batches] == [7] * 17 + [1]
  found = [number for one in batches for number in one]
  assert sorted(found[:60]) == sorted(found[60:]) == every and found[:60] != every


@pytest.mark.slow
@pytest.mark.parametrize("count, files, expected", [
  (2, 2, [[0, 1, 2], [10, 11, 12]]),  # a file each
  (2, 1, [[0, 2], [1]]),  # too few files: every other record
])
def test_shares_of_two_workers(write, tmp_path, count, files, expected):
  for index in range(files):
    write("%d.txt" % index, "".join("%d\n" % (10 * index + number) for number in range(3)))
  assert [drawn(datasets.text_line_dataset(
    once(index=index, count=count), str(tmp_path / "*.txt"), numbers))[0]
    for index in range(count)] == expected


@pytest.mark.parametrize("rest, size", [(False, None), (True, 2)])
def test_a_remainder(write, rest, size):
  path = write("a", "1\n2\n3\n")
  batch = datasets.text_line_dataset(once(2), path, numbers, drop_remainder=rest)
  assert batch.shape.as_list() == [size]
  assert drawn(batch) == [[1, 2]] + ([] if rest else [[3]])


# Bad records.

BAD = "0,0\n1,1\n2,x\n3,3\n4,4\n5\n6,6\n"


def columns(lines):
  return tf.io.decode_csv(lines, [[0], [0]])


REASON = "Field 1 in record 0 is not a valid int32: x"


def test_the_good_ones_before_a_bad_record_come_first(write):
  path = write("a.csv", BAD)
  batches = drawn(datasets.text_line_dataset(once(4), path, columns)[0])
  assert batches[:-1] == [[0, 1]]
  error = batches[-1]
  assert isinstance(error, tf.errors.InvalidArgumentError)
  assert "%s:3: %s" % (path, REASON) in error.message
  explained = batch_decoding.explain_input_error(error, tf.get_default_graph())
  assert explained.message == "%s:3: %s" % (path, REASON)


def test_our_sessions_raise_the_decoders_error_with_the_place(write):
  path = write("a.csv", "x,y\n" + BAD)
  tf.train.get_or_create_global_step()
  batch = datasets.text_line_dataset(once(2), path, columns, header_lines=1)
  with pytest.raises(tf.errors.InvalidArgumentError) as error:
    with tf1ps.MonitoredTrainingSession() as session:
      while not session.should_stop():
        session.run(batch)
  assert error.value.message == "%s:4: %s" % (path, REASON)


@pytest.mark.parametrize("size, kwargs, expected", [
  (4, {}, [[0, 1, 3], [4, 6]]), (1, {}, [[0], [1], [3], [4], [6]]),
  (3, {"drop_remainder": True}, [[0, 1, 0], [3, 4, 3]]),
  (2, {"num_parallel_decodes": 2}, [[0, 1], [3], [4], [6]]),
  (4, {"shuffle": 1}, [[0, 1, 3], [4, 6]])])
def test_bad_records_are_skipped(write, caplog, graph, size, kwargs, expected):
  path = write("a.csv", BAD)
  policy = bad_records.BadRecords("skip", 0.5)
  graph_input.use_bad_records(policy)
  batch = datasets.text_line_dataset(once(size), path, columns, **kwargs)
  with caplog.at_level(logging.WARNING, "tf1ps"):
    assert drawn(batch[0]) == expected
  assert policy.skipped == 2
  assert [record.getMessage() for record in caplog.records if record.name == "tf1ps"] == [
    "skipped the bad record %s:3: %s" % (path, REASON),
    "skipped the bad record %s:6: Expect 2 fields but have 1 in record 0" % path]


def test_too_many_are_an_error_at_once_or_at_the_end(write, graph):
  path = write("a.csv", BAD)
  graph_input.use_bad_records(bad_records.BadRecords("skip", 0.015))
  error = batch_decoding.explain_input_error(
    drawn(datasets.text_line_dataset(once(4), path, columns))[-1], graph)
  assert isinstance(error, bad_records.TooManyBadRecordsError)
  assert "2 of 100 records are bad" in str(error) and path + ":6" in str(error)


def test_too_many_of_few_are_an_error_at_the_end(write, graph):
  path = write("a.csv", BAD)
  graph_input.use_bad_records(bad_records.BadRecords("skip", 0.02))
  batches = drawn(datasets.text_line_dataset(once(4), path, columns)[0])
  assert batches[:-1] == [[0, 1, 3], [4, 6]]
  assert "2 of 7 records are bad" in batches[-1].message


@pytest.fixture
def later_warnings():
  """Has warnings after those of a test: TensorFlow 2 repeats its last five in errors of others."""
  yield
  with tf.Graph().as_default(), tf.Session() as session:
    bad = tf.io.parse_single_example(b"a", {"x": tf.io.FixedLenFeature([], tf.int64, 0)})
    for _ in range(6):
      with pytest.raises(tf.errors.InvalidArgumentError):
        session.run(bad)


@pytest.mark.parametrize("junk", [b"\x0a\x05abc", b"\x0a\xff"])
def test_a_bad_tf_record_is_told_by_its_number(tmp_path, junk, later_warnings):
  path = tf_record_file(str(tmp_path / "a"), [b"", junk])
  features = {"x": tf.io.FixedLenFeature([], tf.int64, 0)}
  batches = drawn(datasets.tf_record_dataset(
    once(), path, lambda values: tf.io.parse_example(values, features)))
  assert path + ":2: " in batches[-1].message
  assert "ould not parse example" in batches[-1].message or "be decoded" in batches[-1].message


def test_records_that_do_not_fit_each_other_are_an_error(tmp_path):
  path = tf_record_file(str(tmp_path / "a"), [b"ab", b"abc"])
  error, = drawn(datasets.tf_record_dataset(
    once(), path, lambda values: tf.io.decode_raw(values, tf.uint8), shuffle=1))
  assert isinstance(error, tf.errors.InvalidArgumentError) and "size" in error.message


def test_a_decoder_with_a_table_of_the_graph(write, graph):
  path = write("a", "1\nx\n")
  table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
    tf.constant([1], tf.int32), tf.constant([7], tf.int32)), -1)
  batch = datasets.text_line_dataset(once(), path, lambda lines: table.lookup(numbers(lines)))
  tf.train.get_or_create_global_step()
  with tf1ps.MonitoredTrainingSession() as session:
    assert session.run(batch).tolist() == [7]
    with pytest.raises(tf.errors.InvalidArgumentError, match=path + ":2: "):
      session.run(batch)


def test_only_python_of_the_users_counts_as_such(write, graph):
  path = write("a", "1\n")
  datasets.text_line_dataset(once(), path, numbers)
  assert not iterators.has_python_calls(graph)


# Ranges that are leased.


class Leasing(Shard):
  """A share whose files are leased."""

  leased_ranges = (2 ** 32 + 1, 0, 2)

  def sources(self, pattern, shuffle=False):
    return Sources(self.files(pattern), tf.data.Dataset.from_tensor_slices(
      tf.constant(self.leased_ranges, tf.int64)))


def leased_files(write, tmp_path):
  write("0", "h\n1\n2\n3\n")
  write("1", "h\n")
  write("2", "h\n4\n5\n")
  return str(tmp_path / "*")


@pytest.mark.parametrize("size, fixed, expected", [
  (10, False, [[1, 2, 3, 4, 5]]), (1, False, [[1], [2], [3], [4], [5]]),
  (2, True, [[1, 1], [2, 3], [4, 4], [5, 5]])])
def test_leased_files(write, tmp_path, graph, size, fixed, expected):
  shard = Leasing(batch_size=size)
  batch = datasets.text_line_dataset(
    shard, leased_files(write, tmp_path), numbers, header_lines=1,
    drop_remainder=fixed)
  report, = shard.range_reports
  batches = drawn((batch,) + report)
  assert [each[0] for each in batches] == expected
  assert [source for each in batches for source in each[1]] == [0, 0, 0, 2, 2]
  ends = [end for each in batches for end in zip(*each[2:])]
  # The end of the data reports the ranges that ended after the last batch.
  assert ends == [(2 ** 32 + 1, 0), (0, 3), (2, 2)][:len(ends)] and len(ends) >= 2


def test_a_bad_record_of_a_leased_file(write, tmp_path):
  write("0", "1\n")
  path = write("1", "2\nx\n")
  batches = drawn(
    datasets.text_line_dataset(Leasing(batch_size=2), [str(tmp_path / "0"), path, path], numbers)
  )
  assert path + ":2: " in batches[-1].message


# What is refused, and what cannot be read.


@pytest.mark.parametrize("kwargs, expected", [
  (dict(shuffle=0), "shuffle must be an integer of at least 1, got 0"),
  (dict(prefetch=-1), "prefetch must be an integer of at least 0, got -1"),
  (dict(num_parallel_decodes=0), "num_parallel_decodes must be an integer of at least 1, got 0"),
  (dict(header_lines=1.5), "header_lines must be an integer of at least 0, got 1.5"),
  (dict(compression="gzip"), 'compression must be "GZIP", "ZLIB", "" for none.*got \'gzip\'')])
def test_wrong_arguments_are_refused(write, kwargs, expected):
  with pytest.raises(ValueError, match=expected):
    datasets.text_line_dataset(once(), write("a", "1\n"), numbers, **kwargs)


def test_decoders_that_are_none_are_refused(write):
  for decode in (lambda lines: 3, lambda lines: tf.size(lines)):
    with pytest.raises(TypeError, match="must return tensors, dense or sparse, whose first"):
      datasets.text_line_dataset(once(), write("a", "1\n"), decode)


def test_no_file_is_an_error_when_built_and_a_vanished_one_later(write, tmp_path):
  with pytest.raises(ShardError, match="no file matches"):
    datasets.text_line_dataset(once(), str(tmp_path / "none"), numbers)
  path = write("a", "1\n")
  batch = datasets.text_line_dataset(once(), path, numbers)
  (tmp_path / "a").unlink()
  error, = drawn(batch)
  assert isinstance(error, tf.errors.NotFoundError) and path in error.message


def test_a_damaged_file_ends_training_also_where_bad_records_are_skipped(write, graph):
  graph_input.use_bad_records(bad_records.BadRecords("skip", 1.0))
  batches = drawn(datasets.text_line_dataset(once(), write("a.gz", b"no gzip"), numbers))
  assert isinstance(batches[-1], tf.errors.DataLossError)
