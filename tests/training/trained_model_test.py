from __future__ import annotations

import logging

import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program
from tf1ps.training import checkpoints, trained_model
from tf1ps.training.program import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)


def test_newest(tmp_path):
  with pytest.raises(checkpoints.CheckpointError, match="there is no checkpoint in"):
    trained_model.newest(str(tmp_path))
  first = line_program.save(tmp_path, 1, w=1., b=1.)
  second = line_program.save(tmp_path, 2, w=1., b=1.)
  assert trained_model.newest(str(tmp_path)) == second
  assert trained_model.newest(str(tmp_path), first) == first
  with pytest.raises(checkpoints.CheckpointError, match="without the endings"):
    trained_model.newest(str(tmp_path), second + ".data-00000-of-00002")


def test_it_is_built_in_a_graph_of_its_own_with_a_global_step():
  with tf.Graph().as_default() as graph:
    trained = trained_model.build(LINE, "eval", 4, "ref")
    assert not graph.get_operations()
  names = {variable.op.name: variable.op.type
           for variable in trained.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)}
  assert names == {name: "VariableV2" for name in ("w", "b", "global_step")}
  assert not trained.one_batch


def test_batches_end_with_the_input_or_when_interrupted(tmp_path):
  path = line_program.save(tmp_path, 1, w=1., b=1.)
  answers = iter([False, False, True])
  for interrupted, sizes in ((None, [4, 4, 2]), (lambda: next(answers), [4, 4])):
    trained = trained_model.build(LINE, "predict", 4, "resource")
    with trained_model.session(trained.graph, path) as session:
      assert list(trained_model.batches(session, trained, trained.batch_size, interrupted)) == sizes


def test_a_long_input_is_spoken_of(tmp_path, caplog, monkeypatch):
  caplog.set_level(logging.INFO, "tf1ps")
  monkeypatch.setattr(trained_model, "_SPEAK_EVERY", 0)
  path = line_program.save(tmp_path, 1, w=1., b=1.)
  trained = trained_model.build(LINE, "predict", 5, "resource")
  with trained_model.session(trained.graph, path) as session:
    list(trained_model.batches(session, trained, trained.batch_size))
  assert [record.getMessage() for record in caplog.records] == [
      "1 batches after 0 s, and the input has not ended",
      "2 batches after 0 s, and the input has not ended"]
