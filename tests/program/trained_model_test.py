from __future__ import annotations

import logging
import re

import pytest
import tensorflow.compat.v1 as tf

from tests.pipeline import classic
from tests.training import line_program
from tf1ps import pipeline
from tf1ps.checkpoint import checkpoints
from tf1ps.program import trained_model
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)


def test_newest(tmp_path):
  with pytest.raises(checkpoints.CheckpointError, match="%s has no checkpoint" % tmp_path):
    newest(tmp_path)
  first = line_program.save(tmp_path, 1, w=1., b=1.)
  second = line_program.save(tmp_path, 2, w=1., b=1.)
  assert newest(tmp_path) == second
  assert newest(tmp_path, first) == first
  with pytest.raises(checkpoints.CheckpointError, match="without the endings"):
    newest(tmp_path, second + ".data-00000-of-00002")


def newest(directory, checkpoint=None):
  return trained_model.use_newest(str(directory), checkpoint, lambda path: path)


def test_it_is_built_in_a_graph_of_its_own_with_a_global_step():
  with tf.Graph().as_default() as graph:
    trained = trained_model.build(LINE, "eval", 4)
    assert not graph.get_operations()
  names = {variable.op.name: variable.op.type
           for variable in trained.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)}
  assert names == {name: "VarHandleOp" for name in ("w", "b", "global_step")}
  assert trained.most_batches is None


def test_batches_end_with_the_input_or_when_interrupted(tmp_path):
  path = line_program.save(tmp_path, 1, w=1., b=1.)
  answers = iter([False, False, True])
  for interrupted, sizes in ((None, [4, 4, 2]), (lambda: next(answers), [4, 4])):
    trained = trained_model.build(LINE, "predict", 4)
    with trained_model.session(trained.graph, path) as session:
      assert list(trained_model.batches(session, trained, trained.batch_size, interrupted)) == sizes


def test_a_prediction_of_data_without_an_end_is_refused():
  def repeats(mode, shard):
    return tf.data.Dataset.from_tensor_slices(
      ({"x": line_program.X}, line_program.Y)).batch(shard.batch_size).repeat()

  endless = Program("endless", line_program, repeats, line_program.model_fn)
  with pytest.raises(pipeline.EndlessDatasetError) as error:
    trained_model.build(endless, "predict", 10)
  assert str(error.value) == ("input_fn repeats its data without end in mode 'predict': let it "
                              "call repeat() in mode 'train' alone")


def test_a_long_input_is_spoken_of(tmp_path, caplog, set_timing):
  caplog.set_level(logging.INFO, "tf1ps")
  set_timing(trained_model, reminder_interval=0)
  path = line_program.save(tmp_path, 1, w=1., b=1.)
  trained = trained_model.build(LINE, "predict", 5)
  with trained_model.session(trained.graph, path) as session:
    list(trained_model.batches(session, trained, trained.batch_size))
  assert [re.sub(r"in \d+ s", "in N s", record.getMessage()) for record in caplog.records] == [
      "1 batches read in N s; the input has not ended yet. If input_fn repeats its data without "
      "end, let it call repeat() in mode 'train' alone",
      "2 batches read in N s; the input has not ended yet"]


def classic_model(path, **arguments):
  """A model whose input comes from queue runners, with a checkpoint."""
  graph = tf.Graph()
  with graph.as_default():
    tf.get_variable("w", [], initializer=tf.zeros_initializer())
    batch = classic.pipeline([path], **arguments)
    size = tf.size(batch)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      saved = tf.train.Saver().save(session, path + ".ckpt", write_meta_graph=False)
  return trained_model.TrainedModel(graph, batch, None, size, "eval", None), saved


def test_a_classic_input_ends_cleanly_and_its_failures_are_told(tmp_path):
  for bad, text in (((), None), ((5,), "a.csv:5: Field 1 in record 0 is not a valid int32: x")):
    trained, saved = classic_model(classic.write(tmp_path / "a.csv", 6, bad=bad))
    found, error = [], None
    try:
      with trained_model.session(trained.graph, saved) as session:
        for batch in trained_model.batches(session, trained, trained.features):
          found += batch.tolist()
    except tf.errors.InvalidArgumentError as caught:
      error = caught.message.splitlines()[0]
    assert found == list(range(1, 5 if bad else 7))
    assert error == (text and str(tmp_path / text))


def test_a_classic_input_that_has_not_ended_holds_nothing_up(tmp_path):
  trained, saved = classic_model(classic.write(tmp_path / "a.csv", 6), num_epochs=None, capacity=3)
  with trained_model.session(trained.graph, saved) as session:
    assert session.run(trained.features).tolist() == [1]
