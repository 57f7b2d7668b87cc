from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import line_program
from tf1ps.checkpoint import CheckpointError
from tf1ps.program import CallError, new_data
from tf1ps.program.contract import Program

PAIR = (line_program.input_fn, line_program.model_fn)


@pytest.fixture
def trained(tmp_path):
  """A directory whose newest checkpoint says y = 2 x + 1."""
  line_program.save(tmp_path / "run", 3, 1., 1.)
  line_program.save(tmp_path / "run", 7, 2., 1.)
  return str(tmp_path / "run")


@pytest.mark.parametrize("program", [
  PAIR, line_program, "tests.training.line_program", Program("line", line_program, *PAIR)])
def test_an_evaluation_has_metrics(trained, program):
  found = tf1ps.evaluate(program, trained, batch_size=4)
  assert found.metrics == {"loss": 0., "bias": 0., "worst": 0.}
  assert (found.examples, found.global_step, found.checkpoint) == (
    10, 7, trained + "/model.ckpt-7")
  older = tf1ps.evaluate(program, checkpoint=trained + "/model.ckpt-3")
  assert older.metrics == {"loss": 28.5, "bias": -4.5, "worst": 4.5}


def test_predictions_are_arrays_or_a_file(trained, tmp_path):
  found = tf1ps.predict(PAIR, trained, checkpoint="latest", batch_size=4)
  assert found.values["y"].tolist() == line_program.Y.tolist()
  assert found.values["pair"].shape == (10, 2) and found.values["even"].dtype == np.bool_
  (tmp_path / "new.csv").write_text("x\n5\n-2\n")
  new = tf1ps.predict(PAIR, trained, input=tmp_path / "new.csv")
  assert new.values["y"].tolist() == [11., -3.] and new.examples == 2
  done = tf1ps.predict(PAIR, trained, input=tmp_path / "new.csv", output=tmp_path / "y.csv")
  assert done.values is None and (tmp_path / "y.csv").read_text().startswith("y,pair_0,pair_1,even")


def test_an_export_names_its_inputs(trained, tmp_path):
  found = tf1ps.export(PAIR, trained, output=tmp_path / "out")
  assert found.inputs == {"x": "float32 [?]"} and found.export_dir == str(tmp_path / "out")
  assert (tmp_path / "out" / "saved_model.pb").exists()


def test_the_callers_graph_stays_as_it_is(trained):
  with tf.Graph().as_default() as graph:
    tf1ps.evaluate(PAIR, trained)
    tf1ps.predict(PAIR, trained)
    assert not graph.get_operations() and tf.get_default_graph() is graph


@pytest.mark.parametrize("call, error, text", [
  (lambda run: tf1ps.evaluate(PAIR), CallError, "--checkpoint_dir is missing: the directory"),
  (lambda run: tf1ps.evaluate(PAIR, run + "/no"), CheckpointError,
   "the checkpoint directory .*/no does not exist"),
  (lambda run: tf1ps.evaluate(3, run), ValueError, "program must be a module, its name,"),
  (lambda run: tf1ps.predict(PAIR, run, batch_size=0), CallError,
   "batch_size must be an int of at least 1, got 0"),
  (lambda run: tf1ps.predict(PAIR, run, on_bad_record="skip:3"), CallError,
   "on_bad_record must have a ratio from 0 to 1 after skip:, got 'skip:3'"),
  (lambda run: tf1ps.predict(PAIR, run, on_bad_record="skip", input="a.csv"), CallError,
   "--on_bad_record=skip applies to the program's own input: each record of --input must be good"),
  (lambda run: tf1ps.predict(PAIR, run, input="a.txt"), new_data.NewDataError,
   "the new data must end in .csv,"),
  (lambda run: tf1ps.export(PAIR, run, output=run), tf1ps.Error, "export_dir .* is not an empty")])
def test_what_cannot_work_is_an_exception(trained, call, error, text):
  with pytest.raises(error, match=text) as raised:
    call(trained)
  assert isinstance(raised.value, tf1ps.Error)
