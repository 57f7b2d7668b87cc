from __future__ import annotations

import subprocess
import sys

import pytest

from tf1ps import training
from tf1ps.training import model


def test_names_come_from_their_modules():
  assert training.ModelSpec is model.ModelSpec
  assert "ModelSpec" in dir(training) and "ModelSpec" in training.__all__
  with pytest.raises(AttributeError, match="module 'tf1ps.training' has no attribute 'Model'"):
    training.Model()


def test_every_name_is_there():
  for name in training.__all__:
    assert getattr(training, name).__name__ == name


def test_importing_the_room_does_not_import_tensorflow():
  subprocess.run([sys.executable, "-c", "from tf1ps import training; import sys; "
                  "assert 'tensorflow' not in sys.modules"], check=True)
