from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from examples import bags
from tests import program_tasks
from tests.training.job import find

PROGRAM = "--program=" + str(pathlib.Path(bags.__file__))
TWO_PS = ["--num_ps=2", "--num_workers=1", "--batch_size=64", "--learning_rate=0.01"]
SLOTS = {"table": [2000, 8], "table/Adam": [2000, 8], "table/Adam_1": [2000, 8]}


def run(start, folder, program, *flags):
  """Runs a program to its end, with the checkpoints in that folder; returns its task."""
  task = start(program, program_tasks.run_program, program, [
    PROGRAM, "--checkpoint_dir=checkpoints", *flags], folder)
  assert task.wait(100) == 0, task.output
  return task


def tables(folder):
  """The table and its slots in the latest checkpoint."""
  reader = tf.train.load_checkpoint(str(folder / "checkpoints"))
  shapes = reader.get_variable_to_shape_map()
  assert {name: shape for name, shape in shapes.items() if "table" in name} == SLOTS
  return {name: reader.get_tensor(name) for name in SLOTS}


def test_reviews_are_bags_of_common_words():
  words, kind = bags.make_reviews("train")
  lengths = (words >= 0).sum(1)
  assert words.shape == (8000, 10) and lengths.min() == 3 and lengths.max() == 10
  assert words.min() == -1 and words.max() < 2000
  assert (words[words >= 0] < 200).mean() > 0.3 and 0.4 < kind.mean() < 0.6


@pytest.mark.slow
def test_a_job_goes_on_with_another_partition_or_none(start, tmp_path):
  """Shards of 16,000 bytes, then whole and with Adam, then 13 shards; then the table is used."""
  first = run(start, tmp_path, "tf1ps-local", *TWO_PS, "--steps=150", "--optimizer=lazy_adam",
              "--partition_bytes=16000")
  assert "bytes  share" in first.output and "shards" in first.output
  shards = [int(number) for number in re.findall(
    r"/job:ps/task:\d +\d+ +(\d+) +[\d,]+ +[\d.]+%", first.output)]
  assert shards == [6, 6]  # 4 shards of the table and of each of its two slots
  trained = tables(tmp_path)
  never = ~np.isin(np.arange(bags.WORDS), bags.make_reviews("train")[0])
  for name in ("table/Adam", "table/Adam_1"):
    assert trained[name].any() and not trained[name][never].any()
  for steps, flags in ((151, ["--optimizer=adam"]),
                       (302, ["--optimizer=lazy_adam", "--partition_bytes=5000"])):
    again = run(start, tmp_path, "tf1ps-local", *TWO_PS, "--steps=%d" % steps, *flags)
    assert "restored checkpoints/model.ckpt-%d" % {151: 150, 302: 151}[steps] in again.output
    assert ("shards" in again.output) == (steps == 302)
    if steps == 151:  # Adam moves each row by about its rate, 0.01, in a step
      assert np.abs(tables(tmp_path)["table"] - trained["table"]).max() < 0.05
  accuracy, = find(again, r"test accuracy (0\.\d+)")
  assert float(accuracy) > 0.8
  run(start, tmp_path, "tf1ps-predict", "--output=kind.csv")
  run(start, tmp_path, "tf1ps-predict", "--output=exported")
  kind = np.loadtxt(str(tmp_path / "kind.csv"), skiprows=1)
  right = (kind > 0.5) == bags.make_reviews("predict")[1]
  assert right.mean() == pytest.approx(float(accuracy), abs=1e-4)
  assert (tmp_path / "exported" / "saved_model.pb").exists()
