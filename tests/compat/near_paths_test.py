from __future__ import annotations

import pytest

from tf1ps.compat import near_path


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("path, expected", [
  ("trian.csv", "train.csv"), ("train.cvs", "train.csv"), ("data/tset.csv", "data/test.csv"),
  ("dta/test.csv", "data/test.csv"), ("dta", "data"), ("./dta/", "./data/"),
  ("dta/*.csv", "data/*.csv"), ("dta/*.txt", None),
  ("dta/other.csv", None), ("quite_another", None), ("file://trian.csv", None), ("", None)])
def test_the_nearest_path_is_one_that_is_there(tmp_path, monkeypatch, path, expected):
  (tmp_path / "data").mkdir()
  for file in "train.csv", "data/test.csv", "zzz.py":
    (tmp_path / file).write_text("")
  monkeypatch.chdir(str(tmp_path))
  assert near_path(path) == ("; did you mean %s?" % expected if expected else "")
  assert near_path("/" + path if path else path) == ""


@pytest.mark.any_tensorflow
def test_the_ending_of_the_wanted_files(tmp_path):
  for file in "digits.py", "digits.pyc", "digits.txt":
    (tmp_path / file).write_text("")
  assert near_path(str(tmp_path / "digit.py"), ".py") == "; did you mean %s?" % (
    tmp_path / "digits.py")
