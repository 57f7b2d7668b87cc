"""What needs no package. The rest is in tests/v1, whose processes have it."""
from __future__ import annotations

import logging
import os

from tf1ps.compat import estimator


def test_exports_of_one_second_into_one_folder_get_names_of_their_own(tmp_path):
  def make(unused_self, folder):
    os.makedirs(os.path.join(folder, b"100"))
    with open(os.path.join(folder, b"100", b"saved_model.pb"), "w"):
      return os.path.join(folder, b"100")

  export = estimator._export_aside(make)
  found = [export(None, base) for base in (str(tmp_path), bytes(tmp_path), str(tmp_path))]
  assert [os.path.basename(path) for path in found] == [b"100", b"101", b"102"]
  assert sorted(os.listdir(str(tmp_path))) == ["100", "101", "102"]
  os.rename(str(tmp_path / "100"), str(tmp_path / "temp-others"))
  os.rename(str(tmp_path / "101"), str(tmp_path / "200"))
  assert os.path.basename(export(None, str(tmp_path))) == b"201"


def test_one_deprecation_of_the_package_is_logged():
  found, logger = estimator.OneDeprecation(), logging.getLogger("tensorflow")

  def passes(*args):
    return found.filter(logger.makeRecord(
      "tensorflow", logging.WARNING, "f", 1, "From %s: %s (%s)", args, None))

  assert passes("a.py:1", "RunConfig", "tensorflow_estimator.python.estimator.run_config")
  assert not passes("a.py:2", "Estimator", "tensorflow_estimator.python.estimator.estimator")
  assert passes("a.py:3", "where", "tensorflow.python.ops.array_ops") and passes()
