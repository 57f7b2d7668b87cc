from __future__ import annotations

import glob

import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program, local_loop, local_server
from tf1ps.checkpoint import global_step
from tf1ps.program import contract
from tf1ps.session.membership import Membership
from tf1ps.state import heartbeat
from tf1ps.training import build, job_summaries, options


def member(index, rate, state=heartbeat.MEMBER_TRAINING, role="worker", step=9):
  return heartbeat.Member(
    "ps" if role == "ps" else "worker", index, role, "here", 1, "run", state, step, 0, 0, "", 0.5,
    steps_per_second=rate, examples_per_second=32 * rate)


def test_the_rates_are_those_of_the_workers_that_train():
  assert job_summaries.worker_rates([
    member(0, 1.0, role="ps"), member(0, 2.0, role="chief"), member(1, 3.0), member(2, 0.0, step=0),
    member(3, 0.0), member(4, 5.0, heartbeat.MEMBER_SERVING),
    member(5, 6.0, heartbeat.MEMBER_DONE)]) == {
      "steps_per_sec/worker_0": 2.0, "examples_per_sec/worker_0": 64.0,
      "steps_per_sec/worker_1": 3.0, "examples_per_sec/worker_1": 96.0,
      "steps_per_sec/worker_3": 0.0, "examples_per_sec/worker_3": 0.0}


def test_the_text_has_the_given_flags_first():
  made = options.Options(steps=5, batch_size=[4, 8], overlap="prefetch")
  text = job_summaries.flags_text(made, 2, 3)
  given, default = text.split("By default:")
  assert "2 ps, 3 workers" in given and tf.version.VERSION in given
  assert given.split("Given:\n\n")[1].splitlines()[:3] == [
    "    --batch_size=4,8", "    --steps=5", "    --overlap=prefetch"]
  assert "    --optimizer=adam\n" in default and "None" not in text


def events(directory):
  tf.summary.FileWriterCache.clear()
  return [(event.step, value) for path in glob.glob(str(directory / "events*"))
          for event in tf.train.summary_iterator(path) for value in event.summary.value]


def test_the_events_have_the_flags_the_rates_and_the_queues(tmp_path, set_timing):
  set_timing(job_summaries, first_report=0.0, report_interval=0.0)
  made = options.Options(steps=7, checkpoint_dir=str(tmp_path))
  run = Membership(local_server.record("job-summaries"))
  with tf.Graph().as_default():
    model = local_loop.Model()
    queue = tf.train.slice_input_producer([tf.range(3)], num_epochs=1)
    del queue
    tracker = global_step.GlobalStepTracker()
    tracker.add_listener(lambda *_: tracker.ask_within(1))
    hook = job_summaries.JobSummaries(tracker, run, made)
    tags = [op.get_attr("T") for op in tf.get_default_graph().get_operations()
            if op.type == "ScalarSummary" and b"queue_size/" in op.inputs[0].op.get_attr(
              "value").string_val[0]]
    assert len(tags) == 1

    class Beats(tf.train.SessionRunHook):
      def after_run(self, *unused):
        step = run.heartbeat.get("step")
        run.heartbeat.set(state=heartbeat.MEMBER_TRAINING, step=step + 3, examples=32 * (step + 3))
        run.heartbeat.beat()

    creator = tf.train.ChiefSessionCreator(tf.train.Scaffold(local_init_op=tf.group(
      tf.local_variables_initializer(), tf.tables_initializer())))
    with tf.train.MonitoredSession(creator, [tracker, Beats(), hook]) as session:
      for _ in range(3):
        session.run(model.train_op)
  run.stop()
  found = events(tmp_path)
  step, flags = next((step, value) for step, value in found if value.tag == "flags")
  assert step == 0 and flags.metadata.plugin_data.plugin_name == "text"
  assert b"    --steps=7\n" in flags.tensor.string_val[0]
  rates = {value.tag: value.simple_value for _, value in found if value.tag != "flags"}
  assert set(rates) == {"steps_per_sec/worker_0", "examples_per_sec/worker_0"}
  assert rates["steps_per_sec/worker_0"] > 0
  assert rates["examples_per_sec/worker_0"] == pytest.approx(
    32 * rates["steps_per_sec/worker_0"], rel=1e-3)


def rate_of(flags, **spec):
  def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    made = dict(spec)
    if "make_optimizer" in made:
      made["optimizer"] = made.pop("make_optimizer")()
    return contract.ModelSpec(
      loss=tf.reduce_mean(tf.square(w * features["x"] - labels)), **made)

  made = options.Options(steps=9, batch_size=4, **flags)
  run = Membership(local_server.record("job-summaries"))
  program = contract.Program("program", None, line_program.input_fn, model_fn)
  with tf.Graph().as_default() as graph:
    build.build_step(program, run.cluster, options.shard_of(made, 0, 3), made, "job-summaries")
    values = [op.inputs[1] for op in graph.get_operations() if op.type == "ScalarSummary"
              and op.inputs[0].op.get_attr("value").string_val[0] == b"learning_rate"]
    return [value.op.get_attr("value").float_val[0] for value in values]


@pytest.mark.parametrize("flags, rate", [
  ({}, 0.001), (dict(learning_rate=0.25), 0.25),
  (dict(sync_replicas=True, learning_rate=0.1), 0.1),
  (dict(replication="in_graph"), 0.001), (dict(replication="all_reduce", optimizer="sgd"), 0.01)])
def test_the_learning_rate_is_a_summary(flags, rate):
  assert rate_of(flags) == pytest.approx([rate])


def test_a_program_with_an_optimizer_of_its_own_knows_its_rate():
  assert rate_of({}, optimizer=tf.train.GradientDescentOptimizer(0.1)) == pytest.approx([0.1])
  assert rate_of({}, optimizer=tf.train.GradientDescentOptimizer(lambda: 0.1)) == []


def test_a_programs_own_summary_of_the_rate_is_the_only_one():
  def make_optimizer():
    tf.summary.scalar("learning_rate", 0.2)
    return tf.train.GradientDescentOptimizer(0.1)

  assert rate_of({}, make_optimizer=make_optimizer) == pytest.approx([0.2])
