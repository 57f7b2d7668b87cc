from __future__ import annotations

import pytest

from tf1ps.checkpoint import CheckpointError
from tf1ps.program import arguments

pytestmark = pytest.mark.any_tensorflow


def test_a_directory_and_a_checkpoint_may_be_path_objects(tmp_path):
  with pytest.raises(CheckpointError, match="%s has no checkpoint" % tmp_path):
    arguments.check_checkpoint(tmp_path, None)
  (tmp_path / "model.ckpt-1.index").write_text("")
  arguments.check_checkpoint(tmp_path, None)
  arguments.check_checkpoint(None, tmp_path / "model.ckpt-1")
  assert arguments.path_of(tmp_path / "model.ckpt-1") == str(tmp_path / "model.ckpt-1")
