from __future__ import annotations

import gzip
import pathlib
import struct

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from absl import flags
from absl.testing import flagsaver

import tf1ps
from examples import digits, handwritten_digits
from examples.handwritten_digits import read
from tests import file_tasks
from tf1ps.pipeline import IteratorPositions
from tf1ps.pipeline.shard import Shard


@pytest.fixture
def graph():
  flags.FLAGS.mark_as_parsed()
  with tf.Graph().as_default() as graph:
    yield graph


def write_idx(path, magic, values):
  content = struct.pack(">I{}I".format(values.ndim), magic, *values.shape) + values.tobytes()
  (gzip.open if path.suffix == ".gz" else open)(str(path), "wb").write(content)


@pytest.fixture
def mnist(tmp_path):
  """A folder with MNIST's four files, of three training and two test images of 2x2; two are .gz."""
  images = np.arange(20, dtype=np.uint8).reshape(5, 2, 2)
  labels = np.array([7, 1, 2, 9, 0], np.uint8)
  write_idx(tmp_path / "train-images-idx3-ubyte.gz", 0x803, images[:3])
  write_idx(tmp_path / "train-labels-idx1-ubyte", 0x801, labels[:3])
  write_idx(tmp_path / "t10k-images-idx3-ubyte", 0x803, images[3:])
  write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", 0x801, labels[3:])
  return tmp_path


def test_csv_is_whole_and_split_by_blocks_of_ten_rows():
  everything = np.loadtxt(handwritten_digits.CSV, delimiter=",", dtype=np.uint8)
  train, test = read("train"), read("eval")
  assert everything.shape == (1797, 65)
  assert train.images.shape == (1437, 64) and train.labels.shape == (1437,)
  assert test.images.shape == (360, 64) and test.labels.shape == (360,)
  np.testing.assert_array_equal(test.images[9:11], everything[[9, 50], :64])
  np.testing.assert_array_equal(train.labels[:40], everything[10:50, 64])
  assert train.images.max() == test.images.max() == train.white == 16
  assert np.bincount(test.labels).tolist() == [36, 39, 40, 35, 35, 36, 34, 36, 34, 35]


def test_predicting_reads_what_evaluation_reads():
  np.testing.assert_array_equal(read("predict").images, read("eval").images)


def test_rows_by_their_places_in_every_fifty():
  everything = np.loadtxt(handwritten_digits.CSV, delimiter=",", dtype=np.uint8)
  chosen = handwritten_digits.read_csv([3, 49])
  np.testing.assert_array_equal(chosen.labels[:3], everything[[3, 49, 53], 64])
  assert len(chosen.labels) == 36 + 35  # 1797 = 35 * 50 + 47


def test_pixels_to_feed_are_0_to_1(mnist):
  for data_dir, white in ((None, 16), (str(mnist), 255)):
    for mode, digits_to_feed in zip(("train", "eval"), handwritten_digits.read_to_feed(data_dir)):
      data = read(mode, data_dir)
      assert digits_to_feed.images.dtype == np.float32
      np.testing.assert_allclose(digits_to_feed.images, data.images / white, rtol=1e-6)
      np.testing.assert_array_equal(digits_to_feed.labels, data.labels)


def test_mnist_reads_plain_and_compressed_files(mnist):
  train, test = (read(mode, str(mnist)) for mode in ("train", "eval"))
  assert train.images.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
  assert train.labels.tolist() == [7, 1, 2]
  assert test.images.tolist() == [[12, 13, 14, 15], [16, 17, 18, 19]]
  assert test.labels.tolist() == [9, 0]
  assert train.white == 255


def break_missing(folder):
  (folder / "train-images-idx3-ubyte.gz").unlink()


def break_magic(folder):
  write_idx(folder / "train-labels-idx1-ubyte", 0x803, np.zeros([3, 1, 1], np.uint8))


def break_length(folder):
  path = folder / "train-labels-idx1-ubyte"
  path.write_bytes(path.read_bytes()[:-1])


def break_head(folder):
  (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0")


def break_gzip(folder):
  path = folder / "train-images-idx3-ubyte.gz"
  path.write_bytes(path.read_bytes()[:-9])


def break_gzip_inside(folder):
  head = gzip.compress(b"")[:10]
  (folder / "train-images-idx3-ubyte.gz").write_bytes(head + b"\xff" * 20)  # no such block type


def break_gzip_type(folder):
  (folder / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")


def break_count(folder):
  write_idx(folder / "train-labels-idx1-ubyte", 0x801, np.zeros([2], np.uint8))


@pytest.mark.parametrize("damage, message", [
    (break_missing, "neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz is there"),
    (break_magic, "train-labels-idx1-ubyte must begin with 0x00000801 and 1 sizes; "
                  "its 19 bytes begin with 0x00000803"),
    (break_length, r"train-labels-idx1-ubyte promises 3 bytes, of shape \(3,\), and holds 2"),
    (break_head, "its 5 bytes begin with 0x00000801"),
    (break_gzip, "train-images-idx3-ubyte.gz cannot be read: "),
    (break_gzip_inside, "train-images-idx3-ubyte.gz cannot be read: "),
    (break_gzip_type, "train-images-idx3-ubyte.gz cannot be read: "),
    (break_count, "3 images, 2 labels in train"),
])
def test_damaged_mnist_is_refused_by_name(damage, message, mnist):
  damage(mnist)
  with pytest.raises(ValueError, match=message):
    read("train", str(mnist))


def test_evaluation_gives_every_test_row_once_and_in_order(graph):
  images, labels = digits.input_fn("eval", Shard(batch_size=128, mode="eval"))
  assert images.shape.as_list() == [None, 64] and labels.shape.as_list() == [None]
  with tf.Session() as session:
    session.run(tf.tables_initializer())
    batches = [session.run([images, labels]) for _ in range(3)]
    with pytest.raises(tf.errors.OutOfRangeError):
      session.run(images)
  test = read("eval")
  np.testing.assert_array_equal(np.concatenate([batch[0] for batch in batches]), test.images / 16)
  np.testing.assert_array_equal(np.concatenate([batch[1] for batch in batches]), test.labels)


def test_the_flag_chooses_mnist(graph, mnist):
  with flagsaver.flagsaver(data_dir=str(mnist)):
    images, labels = digits.input_fn("eval", Shard(batch_size=2, mode="eval"))
  with tf.Session() as session:
    session.run(tf.tables_initializer())
    values, digit = session.run([images, labels])
  assert digit.tolist() == [9, 0]
  np.testing.assert_allclose(values, np.arange(12, 20).reshape(2, 4) / 255, rtol=1e-6)


def test_a_worker_that_starts_again_goes_on_with_the_batches_that_were_next():
  def start(position=None):
    with tf.Graph().as_default() as graph, tf.Session() as session:
      batch, positions = digits.input_fn("train", Shard(batch_size=32)), IteratorPositions(graph)
      session.run(tf.tables_initializer())
      if position:
        positions.restore(session, position)
        return [session.run(batch) for _ in range(3)]
      first = [session.run(batch) for _ in range(5)][0]
      return first, positions.save(session), [session.run(batch) for _ in range(3)]

  flags.FLAGS.mark_as_parsed()
  first, position, following = start()
  again = start(position)
  for one, other in zip(following, again):
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
  assert not np.array_equal(first[0], again[0][0])


def test_the_images_are_on_the_worker_and_no_part_of_the_model(graph):
  worker = "/job:worker/task:1"
  setter = tf1ps.replica_device_setter(ps_tasks=1, worker_device=worker)
  with tf.device(setter), graph.container("job"):
    digits.input_fn("train", Shard(batch_size=32))
  variables = [op for op in graph.get_operations() if op.type == "VarHandleOp"]
  assert [op.device for op in variables] == [worker] * 2
  assert [op.get_attr("container") for op in variables] == [b""] * 2
  assert tf.global_variables() == tf.local_variables() == tf.trainable_variables() == []
  assert graph.as_graph_def().ByteSize() < read("train").images.nbytes / 2


@pytest.mark.parametrize("make", [
  tf.train.MonitoredTrainingSession, tf1ps.MonitoredTrainingSession])
def test_monitored_sessions_load_the_images(graph, make):
  tf.train.create_global_step()
  batch = digits.input_fn("eval", Shard(batch_size=2, mode="eval"))
  with make() as session:
    assert session.run(batch)[1].tolist() == read("eval").labels[:2].tolist()


@pytest.mark.slow
def test_an_array_of_more_than_two_gigabytes(graph):
  array = np.zeros([(1 << 31) // 1024 + 1, 1024], np.uint8)
  array[-1] = 7
  last = digits.load(array, "")[-1]
  with tf.train.MonitoredSession() as session:
    assert session.run(last).tolist() == [7] * 1024


@pytest.mark.slow
def test_the_network_learns(graph):
  tf.set_random_seed(1)
  images, labels = digits.input_fn("train", Shard(batch_size=32))
  with tf.variable_scope("network", reuse=tf.AUTO_REUSE):
    train = digits.model_fn(images, labels, "train")
    test = read("eval")
    answer = digits.model_fn(tf.constant(test.images / np.float32(16)), None, "predict")
  shapes = {v.op.name: v.shape.as_list() for v in tf.trainable_variables()}
  assert shapes == {"network/hidden/weights": [64, 200], "network/hidden/biases": [200],
                    "network/logits/weights": [200, 10], "network/logits/biases": [10]}
  step = tf.train.AdamOptimizer(0.01).minimize(train.loss)
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    for _ in range(400):  # nine epochs
      session.run(step)
    guess = session.run(answer.predictions)
  assert np.mean(guess["digit"] == test.labels) > 0.94
  assert guess["probability"].shape == (360,) and 0.1 <= guess["probability"].min()
  assert answer.loss is None


def test_accuracy_counts_the_right_digits(graph):
  images, labels = digits.input_fn("eval", Shard(batch_size=360, mode="eval"))
  spec = digits.model_fn(images, labels, "eval")
  value, update = spec.metrics["accuracy"]
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(),
                 tf.tables_initializer()])
    guess, right, _ = session.run([spec.predictions["digit"], labels, update])
    assert session.run(value) == pytest.approx(np.mean(guess == right))


@pytest.mark.slow
def test_the_classifier_of_a_coordinator_reads_them(mnist, start):
  file = str(pathlib.Path(digits.__file__).with_name("fashion_images.py"))
  task = start("classifier", file_tasks.run_file, file, "--data_dir=%s" % mnist, "--target=0")
  assert task.wait() == 0, task.output
  assert "3 images of 2 x 2 pixels to train on, 2 to test on" in task.lines
  epoch, = [line for line in task.lines if line.startswith("epoch")]
  assert epoch.startswith("epoch 1: loss 2.") and "accuracy 0 reached: True" in task.lines
