"""The rules of distributed traps: each finds its trap, and all are quiet on what is right."""
from __future__ import annotations

import pathlib
import re
import textwrap

import pytest

from tests.doctor import rules_test
from tf1ps import doctor
from tf1ps.doctor import server_rules, traps

pytestmark = pytest.mark.any_tensorflow
ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAPS = sorted((ROOT / "tests" / "doctor" / "traps").glob("*.py"))
RULES = server_rules.RULES + traps.RULES
_MARK = re.compile(r"# trap: ([\w, -]+)$")


def findings(text, path="program.py"):
  """Returns what the rules of this file find: (line, rule)."""
  program = doctor.read_program(path, text)
  return [(each.line, each.rule.name) for each in doctor.find_all(program, RULES)]


def marks(text):
  """Returns what the comments of a program of traps say: (line, rule)."""
  return sorted((number, rule) for number, line in enumerate(text.split("\n"), 1)
                for found in [_MARK.search(line)] if found for rule in found.group(1).split(", "))


@pytest.mark.parametrize("path", TRAPS, ids=lambda path: path.stem)
def test_each_trap_is_found_in_its_line_and_nothing_else(path):
  text = path.read_text()
  assert sorted(findings(text)) == marks(text)


def test_each_rule_has_its_trap():
  marked = {rule for path in TRAPS for _, rule in marks(path.read_text())}
  assert marked == {rule.name for rule in RULES}
  assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("path", TRAPS, ids=lambda path: path.stem)
def test_what_the_one_import_mends_is_not_found(path):
  text, count = re.subn(
    r"import tensorflow(\.compat\.v1)? as tf", "import tf1ps.v1 as tf", path.read_text())
  assert count == 1
  assert not {rule for _, rule in findings(text)} & {rule.name for rule in RULES if rule.is_fixed}


def test_the_examples_have_no_trap():
  paths = sorted((ROOT / "examples").glob("**/*.py"))
  assert len(paths) > 60
  fixed = {rule.name for rule in RULES if rule.is_fixed}
  assert not [(path, each) for path in paths for each in findings(path.read_text(), str(path))
              if path.name not in rules_test.AS_THEY_ARE or each[1] not in fixed]


SUPERVISED = {"session-without-limit", "chief-restart-goes-back", "last-steps-not-saved"}
OF_LEGACY_PROGRAMS = {
  "actor_critic": {"ps-loop-never-ends", "session-without-limit", "chief-restart-goes-back",
                   "worker-sleeps-30-seconds"},
  "before_1_0": SUPERVISED | {
    "server-join-never-ends", "sync-ends-with-chief", "sync-local-step-not-set",
    "sync-tokens-are-shared"},
  "canned_keras": set(),
  "contrib_layers": {"server-join-never-ends", "session-without-limit", "chief-restart-goes-back",
                     "worker-sleeps-30-seconds"},
  "done_queues": {"session-without-limit", "chief-restart-goes-back", "worker-sleeps-30-seconds",
                  "dequeue-without-limit", "ps-leaves-at-once"},
  "evaluator": SUPERVISED | {"server-join-never-ends", "worker-sleeps-30-seconds"},
  "float_step": {"global-step-of-floats", "server-join-never-ends", "sync-ends-with-chief",
                 "sync-local-step-not-set", "sync-tokens-are-shared"},
  "in_graph": {"server-join-never-ends", "session-without-limit", "chief-restart-goes-back"},
  "learn_experiment": set(),
  "managed_session": SUPERVISED | {"server-join-never-ends", "worker-sleeps-30-seconds"},
  "moving_losses": SUPERVISED | {
    "server-join-never-ends", "worker-sleeps-30-seconds", "average-of-regularization-losses"},
  "plain_session": {"server-join-never-ends", "session-without-limit", "wait-without-limit",
                    "chief-restart-goes-back"},
  "queue_runners": SUPERVISED | {"server-join-never-ends", "worker-sleeps-30-seconds"},
  "slim_train": {"server-join-never-ends", "session-without-limit", "chief-restart-goes-back"},
  "supervisor_async": SUPERVISED | {"server-join-never-ends"},
  "supervisor_sync": SUPERVISED | {
    "server-join-never-ends", "worker-sleeps-30-seconds", "sync-ends-with-chief",
    "sync-tokens-are-shared"},
  "sync_barrier": {"session-without-limit", "chief-restart-goes-back", "worker-sleeps-30-seconds"},
}


def test_the_traps_of_the_legacy_programs():
  found = {}
  for path in (ROOT / "tests" / "legacy" / "programs").glob("*.py"):
    found[path.stem] = {rule for _, rule in findings(path.read_text())}
  assert found == OF_LEGACY_PROGRAMS


def test_the_one_import_leaves_the_legacy_programs_these():
  left = {}
  for path in (ROOT / "tests" / "legacy" / "programs").glob("*.py"):
    text = path.read_text().replace("import tensorflow as tf", "import tf1ps.v1 as tf")
    for _, rule in findings(text):
      left[path.stem] = rule
  assert left == {"float_step": "global-step-of-floats", "plain_session": "wait-without-limit"}


# A task of a cluster.
TASK = """
import sys
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
index = int(sys.argv[1])
cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
server = tf.train.Server(cluster, "worker", index)
setter = tf.train.replica_device_setter(
    cluster=cluster, worker_device="/job:worker/task:%d" % index)
"""
SESSION = """
session = tf.Session(server.target)  # tf1ps-doctor: ignore[session-without-limit]
"""


@pytest.mark.parametrize("source", [
  # Under a device, by whatever way the program comes there.
  """
  def model():
    return tf.get_variable("w", [])
  with tf.device(setter):
    model()
  """,
  """
  def model():
    return tf.train.get_or_create_global_step()
  def train(build):
    with tf.device(setter):
      build()
  train(model)
  """,
  """
  with tf.Graph().as_default(), tf.device("/job:ps/task:%d" % 0), tf.name_scope("a"):
    tf.Variable(1.0)
  """,
  """
  with strategy.scope():
    tf.Variable(1.0)
  """,
  """
  def evaluate():
    tf.train.get_or_create_global_step()
    with tf.Session() as local:
      local.run([])
  evaluate()
  """,
  """
  class Model:
    def build(self):
      tf.get_variable("w", [])
  """,
  """
  class Model(object):
    def __init__(self):
      self.w = self.build()
    def build(self):
      return tf.get_variable("w", [])
  with tf.device(setter):
    Model()
  """,
  """
  class Model(object):
    def build(self):
      return tf.get_variable("w", [])
  class Larger(Model):
    def use(self):
      self.build()
  Model().build()
  """,
  """
  class Model(object):
    @property
    def w(self):
      return tf.get_variable("w", [])
  Model().w
  """,
  # Local variables on the worker.
  """
  with tf.device(setter), tf.device("/job:worker/task:%d" % index):
    tf.metrics.mean(1.0)
    tf.train.string_input_producer(["a"], num_epochs=1)
  session.run(tf.local_variables_initializer())
  tf.train.start_queue_runners(session, tf.train.Coordinator())
  """,
  """
  with tf.device(setter):
    tf.train.string_input_producer(["a"], num_epochs=None)
  tf.train.start_queue_runners(session, tf.train.Coordinator())
  """,
  """
  import tf1ps
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:1")):
    tf.metrics.mean(1.0)  # tf1ps-doctor: ignore[worker-device-of-one-task]
  """,
  # Queues on a ps, with a name, or of one session.
  """
  with tf.device(setter), tf.device("/job:ps/task:0"):
    tf.FIFOQueue(9, tf.int32, shared_name="numbers")
  with tf.device(setter):
    tf.FIFOQueue(9, tf.int32)
  """,
  """
  with tf.device("/job:ps/task:0"):
    queue = tf.FIFOQueue(9, tf.int32, shared_name="numbers")
  session.run(queue.size(), options=tf.RunOptions(timeout_in_ms=100))
  session.run(queue.dequeue())
  """,
  # Writers of the chief, or of a folder of the worker's own.
  """
  if index == 0:
    tf.summary.FileWriter("/logs")
  """,
  """
  writer = tf.summary.FileWriter("/logs") if index == 0 else None
  """,
  """
  folder = "/logs/worker_%d" % index
  tf.summary.FileWriter(folder)
  """,
  # Filters that show what is used.
  """
  with tf.device("/job:worker/task:%d" % index), tf.device("/job:ps/task:0"):
    tf.constant(1)
  """,
  # A step that is counted.
  """
  hook = tf.train.StopAtStepHook(3)
  tf.train.AdamOptimizer().minimize(1.0, global_step=tf.train.get_global_step())
  """,
], ids=str)
def test_a_task_that_is_right(source):
  text = TASK + SESSION.replace("target)", "target, config=tf.ConfigProto(device_filters=["
                                "'/job:ps', '/job:worker/task:%d' % index]))")
  text += textwrap.dedent(source)
  found = [rule for _, rule in findings(text) if rule != "worker-device-of-one-task"]
  assert not found


@pytest.mark.parametrize("source", [
  "tf.train.ClusterSpec({'ps': ['a:1'], 'worker': {0: 'b:1', 2: 'c:1'}})",
  "tf.train.ClusterSpec({'local': ['localhost:0', 'localhost:0']})",
  "tf.train.ClusterSpec({'ps': hosts})",
  "import os\nos.environ['GRPC_FAIL_FAST'] = 'use_caller'",
  "tf.train.MonitoredTrainingSession(save_checkpoint_secs=None, save_checkpoint_steps=3)",
  "tf.train.MonitoredTrainingSession(save_checkpoint_secs=a, save_checkpoint_steps=b)",
  "with tf.train.MonitoredTrainingSession() as s:\n  while not s.should_stop():\n    s.run(a)\n"
  "    if b:\n      break\n  s.run(a)",
  "with tf.Graph().as_default():\n  with tf.container('a/b-1.2'):\n    tf.constant(1)",
  "with tf.container('a'):\n  session.run(tf.constant(1))\n  b = tf.constant(2)",
  "index = int(sys.argv[1])\ntf.train.Server({'ps': ['a:1']}, 'ps', index)",
  "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--index', type=int)\n"
  "tf.train.Server({'ps': ['a:1']}, 'ps', parser.parse_args().index)",
  "with tf.train.MonitoredTrainingSession(checkpoint_dir='a') as session:\n"
  "  session.run_step_fn(lambda step_context: step_context.session.run(a))",
  "tf.Session.reset('')", "tf.Session.reset('', ['a'])",
  "with tf.Session() as s:\n  s.run(tf.local_variables_initializer())\n"
  "  names = tf.train.string_input_producer(['a'], num_epochs=1)\n"
  "  tf.train.start_queue_runners(s, tf.train.Coordinator())",
  "names = tf.train.string_input_producer(['a'])\nsv = tf.train.Supervisor()\n"
  "with sv.managed_session() as session:\n  session.run(names)",
  "iterator = tf.data.make_initializable_iterator(d)\nhook(iterator)\ns = tf.Session()",
  "iterator = tf.data.make_one_shot_iterator(d)\nif a:\n  b = iterator.get_next()\n"
  "else:\n  b = iterator.get_next()",
  "with tf.train.MonitoredTrainingSession() as session:\n  tf.train.Saver().restore(session, 'a')",
  "queue = tf.FIFOQueue(9, tf.int32)\nrest = queue.dequeue_up_to(2)\nqueue.close()",
  "tf.RandomShuffleQueue(20, 10, tf.int32)",
  "device = lambda op: op.type in ('Variable', 'VariableV2', 'VarHandleOp')",
  "device = lambda op: op.type == 'VariableV2'",
  "while True:\n  if tf.train.latest_checkpoint('a') == b:\n    break",
  "import time\nwhile time.time() < end:\n  tf.Session().run(tf.report_uninitialized_variables())\n"
  "  time.sleep(1)",
  "table = tf.get_variable('t', [9, 2])\ntf.nn.embedding_lookup(table, ids)",
  "table = tf.get_variable('t', [9, 2], partitioner=tf.fixed_size_partitioner(2))\n"
  "tf.nn.embedding_lookup(table, ids, 'div')",
  "import threading\ndef run():\n  tf.Session('grpc://a:1', graph=g).run(a)\n"
  "threading.Thread(target=run)",
  "import threading\ndef run():\n  a = tf.constant(1)\n  tf.Session('grpc://a:1').run(a)\n"
  "threading.Thread(target=run)",
  "try:\n  f()\nexcept tf.errors.OpError as error:\n  print('lost' in error.message)",
  "optimizer = tf.train.SyncReplicasOptimizer(o, 2, total_num_replicas=2)\n"
  "optimizer.get_init_tokens_op(num_tokens=0)",
  "one = tf.train.SyncReplicasOptimizer(o, 2) if a else tf.train.SyncReplicasOptimizer(o, 3)",
  "sv = tf.train.Supervisor(logdir='a', summary_op=None)\nsv.saver.save(s, 'a')\n"
  "tf.summary.scalar('a', tf.placeholder(tf.float32))",
  "sv = tf.train.Supervisor(logdir='a')\nsv.saver.save(s, 'a')\ntf.summary.scalar('a', b)",
])
def test_a_program_that_is_right(source):
  assert not findings("import tensorflow as tf\n" + source)


def test_servers_of_one_process_are_no_tasks():
  text = """
import tensorflow.compat.v1 as tf
cluster = {"ps": ["localhost:1"], "worker": ["localhost:2"]}
servers = [tf.train.Server(cluster, job, 0) for job in ("ps", "worker")]
v = tf.get_variable("v", [])
with tf.Session(servers[0].target) as session:
  session.run(v)
"""
  assert not findings(text)


@pytest.mark.parametrize("spelling", ["tf.FIFOQueue", "tf.queue.FIFOQueue"])
def test_both_spellings_of_a_queue(spelling):
  text = TASK + "with tf.device(setter):\n  %s(9, tf.int32, shared_name='a')\n" % spelling
  assert [rule for _, rule in findings(text)] == ["shared-queue-not-shared"]


def test_a_condition_that_only_a_message_tells():
  program = doctor.read_program("p.py", "import tensorflow as tf\n"
                                "tf.train.ClusterSpec({'ps': ['a:70000']})")
  finding, = doctor.find_all(program, RULES)
  assert finding.message == "A server of port 70000 listens on port 4464 instead"
