from __future__ import annotations

import builtins
import functools

import numpy
import pytest

from tf1ps.compat import old_numpy

pytestmark = pytest.mark.any_tensorflow


def test_a_name_that_numpy_has_is_numpys(capsys):
  assert old_numpy.array is numpy.array and old_numpy.random is numpy.random
  assert old_numpy.__version__ == numpy.__version__ and "array" in dir(old_numpy)
  with pytest.raises(AttributeError):
    assert old_numpy.absent
  scope = {}
  exec("from tf1ps.compat.old_numpy import *", scope)
  assert scope["zeros"] is numpy.zeros
  assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name, today", sorted(old_numpy.REMOVED_FROM_NUMPY.items()))
def test_each_removed_name_has_a_value(name, today):
  value = getattr(old_numpy, name)
  if name not in vars(numpy):
    root = numpy if today.startswith("np.") else builtins
    assert value is functools.reduce(getattr, today.replace("np.", "").split("."), root)


@pytest.mark.skipif(hasattr(numpy, "product"), reason="this NumPy has the names")
def test_the_first_use_is_printed_with_its_place(capsys):
  for name in "product", "int":
    vars(old_numpy).pop(name, None)
  code = "\nfrom tf1ps.compat.old_numpy import product\nimport tf1ps.compat.old_numpy as np\n"
  for _ in range(2):
    exec(compile(code + "np.int; np.int\n", "train.py", "exec"), {})
  assert capsys.readouterr().err.splitlines() == [
    "train.py:2: NumPy has no np.product any more: np.prod takes its place",
    "train.py:4: NumPy has no np.int any more: int takes its place"]
