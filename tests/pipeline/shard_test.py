from __future__ import annotations

import pathlib

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import shard


def records(dataset, most=40):
  """The records of a dataset, up to so many."""
  record = tf.data.make_one_shot_iterator(dataset).get_next()
  found = []
  with tf.Session() as session:
    while len(found) < most:
      try:
        found.append(int(session.run(record)))
      except tf.errors.OutOfRangeError:
        break
  return found


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default():
    yield


@pytest.fixture
def files(tmp_path):
  """A pattern of five files, 0.csv to 4.csv."""
  for index in (3, 0, 4, 2, 1):
    (tmp_path / f"{index}.csv").write_text("")
  return str(tmp_path / "*.csv")


def stems(names):
  return [pathlib.Path(name).stem for name in names]


def test_files_are_divided_among_the_workers(files):
  assert [stems(shard.Shard(index, 2).files(files)) for index in range(2)] == [
      ["0", "2", "4"], ["1", "3"]]


def test_a_list_of_patterns_and_names_counts_each_file_once(files, tmp_path):
  assert stems(shard.Shard(1, 2).files([tmp_path / "3.csv", files])) == ["1", "3"]


def test_a_name_with_brackets_is_a_name(tmp_path):
  (tmp_path / "a[1].csv").write_text("")
  assert stems(shard.Shard().files(tmp_path / "a[1].csv")) == ["a[1]"]


@pytest.mark.parametrize("policy", ["records", "none"])
def test_files_are_whole_under_the_other_policies(files, policy):
  assert stems(shard.Shard(1, 2, policy=policy).files(files)) == ["0", "1", "2", "3", "4"]


def test_evaluation_sees_all_files_and_each_record_once_in_order(files):
  share = shard.Shard(mode="eval", epochs=3)
  assert len(share.files(files)) == 5
  assert records(share.dataset(tf.data.Dataset.range(6), shuffle=6)) == [0, 1, 2, 3, 4, 5]


def test_no_match_names_the_pattern(files):
  pattern = files.replace(".csv", ".txt")
  with pytest.raises(shard.ShardError, match="no file matches '.*txt'") as error:
    shard.Shard(0, 2).files([files, pattern])
  assert pattern in str(error.value)


def test_a_misspelt_folder_names_the_nearest(tmp_path):
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "train.csv").write_text("1")
  with pytest.raises(shard.ShardError) as error:
    shard.Shard().files(str(tmp_path / "dta" / "*.csv"))
  assert str(error.value) == "no file matches '%s/dta/*.csv'; did you mean %s/data/*.csv?" % (
    tmp_path, tmp_path)


def test_fewer_files_than_workers_says_what_would_be_right(files):
  with pytest.raises(shard.ShardError, match=r"6 workers cannot share 5 files, .*0\.csv, .*"
                     "--shard=records with shard.dataset.*at least 6 files"):
    shard.Shard(0, 6).files(files)


@pytest.mark.parametrize("policy", [None, "records"])
def test_records_are_divided_and_go_round_for_the_epochs(policy):
  shares = [shard.Shard(index, 2, epochs=2, policy=policy) for index in range(2)]
  assert [records(share.dataset(tf.data.Dataset.range(5))) for share in shares] == [
      [0, 2, 4, 0, 2, 4], [1, 3, 1, 3]]


def test_without_epochs_records_go_on_without_end():
  assert records(shard.Shard(1, 2).dataset(tf.data.Dataset.range(5)), most=7) == [
      1, 3, 1, 3, 1, 3, 1]


def test_two_datasets_are_both_divided():
  share = shard.Shard(1, 2, epochs=1)
  both = tf.data.Dataset.zip((share.dataset(tf.data.Dataset.range(5)),
                              share.dataset(tf.data.Dataset.range(10, 15))))
  assert records(both.map(lambda a, b: 100 * a + b)) == [111, 313]


def test_shuffling_stays_inside_the_share_and_an_epoch():
  tf.set_random_seed(1)
  found = records(shard.Shard(1, 2, epochs=2).dataset(tf.data.Dataset.range(40), shuffle=20))
  first, second = found[:20], found[20:]
  assert sorted(first) == sorted(second) == list(range(1, 40, 2))
  assert first != second


@pytest.mark.parametrize("policy", ["files", "none"])
def test_records_are_whole_under_the_other_policies(policy):
  assert records(shard.Shard(1, 2, epochs=1, policy=policy).dataset(tf.data.Dataset.range(3))) == [
      0, 1, 2]


def test_records_of_divided_files_are_not_divided_again(files):
  share = shard.Shard(1, 2, epochs=1)
  share.files(files)
  assert records(share.dataset(tf.data.Dataset.range(3))) == [0, 1, 2]
  assert share.divided == "files"


def test_under_records_files_are_listed_and_their_records_divided(files):
  share = shard.Shard(1, 2, epochs=1, policy="records")
  share.files(files)
  assert records(share.dataset(tf.data.Dataset.range(3))) == [1]
  assert share.divided == "records"


def test_files_after_divided_records_are_refused(files):
  share = shard.Shard(0, 2)
  share.dataset(tf.data.Dataset.range(3))
  with pytest.raises(shard.ShardError, match="Call shard.files first"):
    share.files(files)


def test_was_asked(files):
  asked_files, asked_dataset = shard.Shard(), shard.Shard()
  assert not asked_files.was_asked
  asked_files.files(files)
  asked_dataset.dataset(tf.data.Dataset.range(3))
  assert asked_files.was_asked and asked_dataset.was_asked


@pytest.mark.parametrize("policy, call, expected", [
    (None, None, r"did not ask its shard for data, so each of the 2 workers would train on all the "
     r"data. Add `dataset = shard.dataset\(dataset\)` or `files = shard.files\(pattern\)`.*"
     "--shard=none"),
    ("files", None, r"Add `files = shard.files\(pattern\)`, or give"),
    ("files", "dataset", r"divided nothing under --shard=files.*Add `files = shard.files"),
    ("records", "files", r"divided nothing under --shard=records.*Add `dataset = shard.dataset"),
])
def test_a_program_that_divided_nothing_is_refused(files, policy, call, expected):
  share = shard.Shard(0, 2, policy=policy)
  if call:
    getattr(share, call)(files if call == "files" else tf.data.Dataset.range(3))
  with pytest.raises(shard.ShardError, match=expected):
    shard.check_asked(share)


def test_a_program_that_need_not_divide_or_did_is_not_refused(files):
  shard.check_asked(shard.Shard(0, 1))
  shard.check_asked(shard.Shard(0, 2, policy="none"))
  shard.check_asked(shard.Shard(mode="eval"))
  share = shard.Shard(0, 2)
  share.files(files)
  shard.check_asked(share)


@pytest.mark.parametrize("arguments, expected", [
    (dict(mode="test"), "mode must be one of train, eval, predict, got 'test'"),
    (dict(index=2, count=2), "got index 2 and count 2"),
    (dict(index=-1), "got index -1 and count 1"),
    (dict(count=2, mode="eval"), "mode 'eval' sees all the data: count must be 1, got 2"),
    (dict(batch_size=0), "batch_size must be at least 1, got 0"),
    (dict(epochs=0), "epochs must be at least 1, or None"),
    (dict(policy="file"), "'file' is not a shard policy: did you mean \"files\""),
])
def test_wrong_arguments_are_refused(arguments, expected):
  with pytest.raises(shard.ShardError, match=expected):
    shard.Shard(**arguments)


def test_dynamic_shares_are_asked_for_once(files):
  with tf.Graph().as_default():
    share = shard.Shard(0, 2, policy="dynamic")
    with pytest.raises(shard.ShardError, match="did not ask its shard for data"):
      shard.check_asked(share)
    names = share.files(files)
    assert hasattr(names, "shard") and share.leased.count == len(shard.Shard().files(files))
    share.dataset(tf.data.TextLineDataset(names))  # nothing is divided twice
    shard.check_asked(share)
    with pytest.raises(shard.ShardError, match="may lease one set of ranges"):
      share.files(files)


def test_dynamic_blocks_are_asked_for_once_and_not_behind_queue_runners():
  with tf.Graph().as_default():
    share = shard.Shard(0, 2, policy="dynamic", batch_size=5)
    records = share.dataset(tf.data.Dataset.range(30))
    shard.check_asked(share)
    with pytest.raises(shard.ShardError, match="may lease one set of ranges"):
      share.dataset(tf.data.Dataset.range(30))
    tf.train.batch([tf.data.make_initializable_iterator(records).get_next()], 5)
    with pytest.raises(shard.ShardError, match="its queue runner has closed cannot start"):
      shard.check_asked(share)


def test_dynamic_shares_of_evaluation_are_all_data(files):
  share = shard.Shard(policy="dynamic", mode="eval")
  assert share.files(files) == shard.Shard().files(files)
  assert share.leased is None


def test_dynamic_shares_and_a_one_shot_iterator_are_refused():
  with tf.Graph().as_default():
    share = shard.Shard(0, 1, policy="dynamic")
    share.dataset(tf.data.Dataset.range(3))
    tf.data.make_one_shot_iterator(tf.data.Dataset.range(3))
    with pytest.raises(shard.ShardError, match="or return the dataset itself from input_fn"):
      shard.check_asked(share)


def test_wrong_calls_are_refused():
  with pytest.raises(shard.ShardError, match="empty list"):
    shard.Shard().files([])
  with pytest.raises(shard.ShardError, match="takes a tf.data.Dataset, got 3"):
    shard.Shard().dataset(3)
  with pytest.raises(shard.ShardError, match="at least 1, or None, got 0"):
    shard.Shard().dataset(tf.data.Dataset.range(3), shuffle=0)


def test_sources_are_the_divided_files_or_all_where_records_are(files):
  share = shard.Shard(1, 2)
  assert stems(share.sources(files).paths) == ["1", "3"] and share.divided == "files"
  assert stems(shard.Shard(1, 2, policy="records").sources(files).paths) == list("01234")
  few = shard.Shard(1, 6, epochs=1)
  assert stems(few.sources(files).paths) == list("01234") and few.sources(files).leased is None
  assert records(few.dataset(tf.data.Dataset.range(12))) == [1, 7] and few.divided == "records"
  with pytest.raises(shard.ShardError, match="6 workers cannot share 5 files"):
    shard.Shard(1, 6, policy="files").sources(files)
