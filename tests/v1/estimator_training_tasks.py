"""What an estimator does at training and evaluation, on either TensorFlow; run as processes."""
from __future__ import annotations

import json
import os

from tests.v1.estimator_tasks import input_fn, make, model_fn, refused


def steps_are_relative_and_ends_absolute(model_dir):
  import tf1ps.v1 as tf
  estimator = make(model_dir)
  assert estimator.train(input_fn, steps=10) is estimator
  assert estimator.latest_checkpoint().endswith("model.ckpt-10")
  estimator.train(input_fn, steps=10)
  assert estimator.get_variable_value("global_step") == 20
  before = estimator.get_variable_value("plane/kernel").tolist()
  estimator.train(input_fn, max_steps=20)  # it is there already
  assert estimator.get_variable_value("plane/kernel").tolist() == before
  make(model_dir).train(input_fn, max_steps=25)  # another estimator on the same directory
  assert estimator.latest_checkpoint().endswith("model.ckpt-25")
  estimator.train(lambda: input_fn(4))  # to the end of the data
  assert estimator.get_variable_value("global_step") == 29
  assert "Can not provide both steps and max_steps" in refused(
    lambda: estimator.train(input_fn, steps=1, max_steps=1))
  assert "Must specify steps > 0" in refused(lambda: estimator.train(input_fn, steps=0))
  assert {"global_step", "plane/bias", "plane/kernel/Adam"} <= set(estimator.get_variable_names())
  assert tf.train.latest_checkpoint(model_dir) == estimator.latest_checkpoint()


def evaluations(model_dir):
  import tf1ps.v1 as tf
  estimator = make(model_dir)
  assert estimator.evaluate(input_fn, steps=1)["global_step"] == 0  # of new variables
  estimator.train(input_fn, max_steps=40)
  metrics = estimator.evaluate(lambda: input_fn(3))
  assert sorted(metrics) == ["error", "global_step", "loss"] and metrics["global_step"] == 40
  assert os.listdir(estimator.eval_dir()) and estimator.eval_dir().endswith("eval")
  estimator.evaluate(input_fn, steps=2, name="test")
  assert os.listdir(estimator.eval_dir("test")) and estimator.eval_dir("test").endswith("eval_test")
  older = estimator.evaluate(input_fn, steps=1, checkpoint_path=model_dir + "/model.ckpt-20")
  assert older["global_step"] == 20 and older["loss"] > metrics["loss"]
  seen = Calls()
  estimator.evaluate(lambda: input_fn(2), hooks=[seen])
  assert [name for name, _ in seen.calls] == [
    "begin", "after_create_session", "after_run", "after_run", "end"]
  assert not tf.get_default_graph().get_operations()  # each call has a graph of its own


def Calls():  # noqa: N802  a class that needs tf1ps.v1
  """Returns a hook that notes its calls."""
  import tf1ps.v1 as tf

  class Hook(tf.train.SessionRunHook):

    def __init__(self):
      self.calls = []

    def begin(self):
      self.calls.append(("begin", None))

    def after_create_session(self, session, coord):
      self.calls.append(("after_create_session", None))

    def before_run(self, run_context):
      return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
      self.calls.append(("after_run", int(run_values.results)))

    def end(self, session):
      self.calls.append(("end", int(session.run(tf.train.get_global_step()))))

  return Hook()


def hooks_and_listeners(model_dir):
  import tf1ps.v1 as tf
  given, of_model, of_chief, saved = Calls(), Calls(), Calls(), []

  class Listener(tf.train.CheckpointSaverListener):

    def after_save(self, session, global_step_value):
      saved.append(int(global_step_value))
      return global_step_value >= 4

  def with_hooks(features, labels, mode, params):
    return model_fn(features, labels, mode, params)._replace(
      training_hooks=[of_model], training_chief_hooks=[of_chief])

  config = tf.estimator.RunConfig(model_dir=model_dir, save_checkpoints_steps=2)
  estimator = tf.estimator.Estimator(with_hooks, params={"rate": 0.1}, config=config)
  estimator.train(input_fn, max_steps=9, hooks=[given], saving_listeners=[Listener()])
  assert saved == [0, 2, 4]  # the listener has asked for the end
  for hook in (given, of_model, of_chief):
    assert hook.calls[:2] == [("begin", None), ("after_create_session", None)]
    assert len(hook.calls) == 2 + 4 + 1 and hook.calls[-1] == ("end", 4)


def losses_that_are_no_numbers(model_dir):
  import tf1ps.v1 as tf

  def diverging(features, labels, mode):
    x = tf.get_variable("x", [], initializer=tf.ones_initializer())
    loss = tf.log(3.0 - tf.cast(tf.train.get_global_step(), tf.float32)) + x
    return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=tf.assign_add(tf.train.get_global_step(), 1))

  config = tf.estimator.RunConfig(model_dir=model_dir, save_checkpoints_steps=100)
  try:
    tf.estimator.Estimator(diverging, config=config).train(input_fn, max_steps=20)
  except tf.train.NanLossDuringTrainingError:
    return
  raise AssertionError("it trained on")


def evaluations_while_training(model_dir):
  import tf1ps.v1 as tf
  evaluated = []

  class Hook(tf.train.SessionRunHook):

    def end(self, session):
      evaluated.append(int(session.run(tf.train.get_global_step())))

  def run(directory, throttle_secs):
    del evaluated[:]
    metrics, _ = tf.estimator.train_and_evaluate(
      make(directory), tf.estimator.TrainSpec(input_fn, max_steps=70),
      tf.estimator.EvalSpec(lambda: input_fn(1), hooks=[Hook()], throttle_secs=throttle_secs))
    assert metrics["global_step"] == 70
    return evaluated

  assert run(model_dir + "/often", 0) == [20, 40, 60, 70]
  assert run(model_dir + "/seldom", 600) == [20, 70]
  spec = tf.estimator.EvalSpec(input_fn)
  for estimator, train_spec, said in (
      (make(model_dir), "spec", "train_spec"), (make(model_dir), None, "train_spec"),
      (object(), tf.estimator.TrainSpec(input_fn), "estimator")):
    try:
      tf.estimator.train_and_evaluate(estimator, train_spec, spec)
    except TypeError as error:
      assert said in str(error)
    else:
      raise AssertionError("it was not refused")


def a_checkpoint_is_deleted_before_it_is_read(model_dir):
  """A slow evaluator goes on with the next one. For a damaged one it takes the one before."""
  import tf1ps.v1 as tf
  from tf1ps import compat
  from tf1ps.checkpoint import CheckpointError
  from tf1ps.v1.estimator import training

  class Delete(tf.train.SessionRunHook):

    def begin(self):
      for name in tf.gfile.Glob(directory + "/model.ckpt-40*"):
        if not is_damaged:
          tf.gfile.Remove(name)
        elif ".data" in name:
          with open(name, "wb") as file:
            file.write(b"damaged")

    def end(self, session):
      evaluated.append(int(session.run(tf.train.get_global_step())))

  evaluated = []
  for is_damaged in (False, True):
    directory = "%s/%d" % (model_dir, is_damaged)
    estimator = make(directory)
    estimator.train(input_fn, max_steps=40)
    evaluations = compat.Evaluations(
      estimator, tf.estimator.TrainSpec(input_fn, 40),
      tf.estimator.EvalSpec(lambda: input_fn(1), hooks=[Delete()]))
    training._evaluate_newest(estimator, evaluations)
    training._evaluate_newest(estimator, evaluations)  # nothing new
  assert evaluated == [20], evaluated
  for step in (0, 20):
    tf.gfile.Remove("%s/model.ckpt-%d.index" % (directory, step))
  try:
    training._evaluate_newest(estimator, evaluations)
  except CheckpointError as error:
    assert "model.ckpt-40 is damaged" in str(error)
  else:
    raise AssertionError("it was not refused")


def the_others_take_their_last_steps_after_max_steps(model_dir):
  """The evaluator evaluates, and exports as the last one, the checkpoint that ends the run."""
  os.environ["TF_CONFIG"] = json.dumps({"task": {"type": "evaluator", "index": 0}})
  import tf1ps.v1 as tf
  from tf1ps import state
  evaluator = make(model_dir)
  del os.environ["TF_CONFIG"]
  trainer, run, evaluated = make(model_dir), state.RunFile(model_dir), []

  class AnotherStep(tf.train.SessionRunHook):

    def end(self, session):
      evaluated.append(int(session.run(tf.train.get_global_step())))
      if evaluated == [40]:
        trainer.train(input_fn, max_steps=41)
        run.write("a run", state.RUN_ENDED, 41)

  class Exporter(tf.estimator.Exporter):
    name = "checkpoints"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
      exported.append((int(checkpoint_path.rpartition("-")[2]), is_the_final_export))

  exported = []
  run.write("a run", state.RUN_RUNNING, 0)
  trainer.train(input_fn, max_steps=40)
  tf.estimator.train_and_evaluate(
    evaluator, tf.estimator.TrainSpec(input_fn, max_steps=40),
    tf.estimator.EvalSpec(lambda: input_fn(1), hooks=[AnotherStep()], exporters=Exporter(),
                          start_delay_secs=0, throttle_secs=0))
  assert evaluated == [40, 41], evaluated
  assert exported == [(40, False), (41, True)], exported


def what_stays_of_checkpoints(model_dir):
  """RunConfig says how many, how often and with which graph."""
  import tf1ps.v1 as tf
  make(model_dir, save_checkpoints_steps=10, keep_checkpoint_max=2).train(input_fn, max_steps=50)
  state = tf.train.get_checkpoint_state(model_dir)
  assert [path.rsplit("-", 1)[1] for path in state.all_model_checkpoint_paths] == ["40", "50"]
  files = os.listdir(model_dir)
  assert "graph.pbtxt" in files and "model.ckpt-50.meta" in files
  assert any("tfevents" in name for name in files)


def fail_as(cluster, job, model_dir, index=0):
  """A task of a job whose loss is no number after some steps."""
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
  import tf1ps.v1 as tf

  def diverging(features, labels, mode, params):
    spec = model_fn(features, labels, mode, params)
    if mode != tf.estimator.ModeKeys.TRAIN:
      return spec
    return spec._replace(loss=tf.log(9.0 - tf.cast(tf.train.get_global_step(), tf.float32)))

  config = tf.estimator.RunConfig(model_dir=model_dir, save_checkpoints_steps=5)
  tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(diverging, params={"rate": 0.1}, config=config),
    tf.estimator.TrainSpec(input_fn), tf.estimator.EvalSpec(
      lambda: input_fn(1), start_delay_secs=0))
