"""What each rule of names and of changes finds, by line; and where the rules are quiet."""
from __future__ import annotations

import pathlib
import textwrap

import pytest

from tests import links_test
from tf1ps import doctor
from tf1ps.doctor import changed_rules, missing_rules, name_tables, python_rules, tpu_rules

pytestmark = pytest.mark.any_tensorflow
ROOT = pathlib.Path(__file__).resolve().parents[2]
OF_NAMES = missing_rules.RULES + tpu_rules.RULES + changed_rules.RULES + python_rules.RULES


def find(source, rules=OF_NAMES):
  """Returns the findings as {(line, rule)}."""
  program = doctor.read_program("program.py", textwrap.dedent(source))
  return {(finding.line, finding.rule.name) for finding in doctor.find_all(program, rules)}


# {rule: the lines of a program; the last one has the finding}
FOUND = {
  "graph-names-are-gone": [
    "import tensorflow as tf; x = tf.placeholder(tf.float32)",
    "from tensorflow import placeholder; placeholder(1)",
    "import tensorflow; tensorflow.train.Supervisor()",
  ],
  "name-is-gone": [
    "import tensorflow.compat.v1 as tf\ntf.data.experimental.CheckpointInputPipelineHook(x)",
    "from tensorflow.data.experimental import StatsAggregator",
  ],
  "name-is-put-back": [
    "import tensorflow.compat.v1 as tf\ntf.pywrap_tensorflow.NewCheckpointReader(x)",
    "import tensorflow as tf\ntf.config.experimental_list_devices()",
  ],
  "file-is-gone": [
    "from tensorflow.python.training import training_ops",
    "import tensorflow.python.training.training_ops as ops",
    "from tensorflow.python.keras.applications.vgg16 import VGG16",
  ],
  "contrib-is-gone": [
    "from tensorflow.contrib import slim",
    "import tensorflow.contrib.slim as slim",
    "import tensorflow as tf\ntf.contrib.layers.fully_connected(x, 3)",
    "import tensorflow as tf\nslim = tf.contrib.slim",
    "from tensorflow.contrib.learn.python.learn.datasets import mnist",
  ],
  "contrib-without-heir": [
    "from tensorflow.contrib import ffmpeg",
    "from tensorflow.contrib.slim import shared_embedding_columns",
    "from tensorflow.contrib.framework import smart_cond",
    "import tensorflow as tf\ntf.contrib.distributions.MultivariateNormalDiag(x)",
    "import tensorflow as tf\ntf.contrib.seq2seq.BasicDecoder(x)",
    "from tensorflow.contrib import rnn\nrnn.AttentionCellWrapper(x)",
    "import tf1ps.v1 as tf\ntf.contrib.crf.crf_binary_score(x)",
    "import tensorflow as tf\ntf.contrib.layers.transform_features('age')",
  ],
  "estimator-is-gone": [
    "import tensorflow.compat.v1 as tf\ntf.estimator.Estimator(f)",
    "from tensorflow.python.estimator import estimator",
  ],
  "estimator-without-heir": [
    "import tensorflow as tf\ntf.estimator.BoostedTreesClassifier(x, 1)",
    "from tensorflow.estimator import BoostedTreesRegressor",
    "import tf1ps.v1 as tf\nestimator = tf.estimator\nestimator.BoostedTreesEstimator(x)",
  ],
  "strategy-of-estimator": [
    "import tensorflow as tf\ntf.estimator.RunConfig(\n"
    "  train_distribute=tf.distribute.experimental.ParameterServerStrategy())",
    "import tf1ps.v1 as tf\ndef config(strategy):\n"
    "  return tf.estimator.RunConfig(train_distribute=strategy)\n"
    "config(tf.compat.v1.distribute.experimental.ParameterServerStrategy())",
    "import tensorflow as tf\ntf.contrib.distribute.ParameterServerStrategy(num_gpus_per_worker=1)",
    "from tensorflow.contrib.distribute import MirroredStrategy",
    "from tensorflow.contrib import distribute",
  ],
  "tpu-is-refused": [
    "import tensorflow as tf\ntf.distribute.TPUStrategy(resolver)",
    "import tensorflow.compat.v1 as tf\ntf.distribute.experimental.TPUStrategy()",
    "import tf1ps.v1 as tf\ntf.distribute.cluster_resolver.TPUClusterResolver('grpc://a:8470')",
    "import tensorflow as tf\ntf.contrib.cluster_resolver.TPUClusterResolver(tpu=name)",
    "import tensorflow as tf\ntf.contrib.tpu.TPUEstimator(model_fn=f)",
    "import tf1ps.v1 as tf\ntf.estimator.tpu.TPUEstimator(f, d, c, p, True)",
    "import tensorflow as tf\ntf.flags.DEFINE_bool('use_tpu', True, '')\n"
    "tf.contrib.tpu.TPUEstimator(f, use_tpu=tf.flags.FLAGS.use_tpu)",
    "import tensorflow.compat.v1 as tf\ntf.tpu.CrossShardOptimizer(x)",
    "from tensorflow.contrib import tpu\ntpu.initialize_system()",
    "import tensorflow.compat.v1 as tf\ntf.tpu.experimental.initialize_tpu_system(x)",
    "import tf1ps.v1 as tf\ntf.tpu.experimental.AdamParameters(0.1)",
    "import tf1ps.v1 as tf\ntf.device('/job:worker/task:%d/device:TPU:0' % index)",
    "import tensorflow as tf\ntf.device('/tpu:0')",
  ],
  "layers-raise": [
    "import tensorflow.compat.v1 as tf\ntf.layers.dense(x, 3)",
    "import tensorflow.compat.v1 as tf\nlayers = tf.layers\n\ncell = tf.nn.rnn_cell.GRUCell(3)",
    "from tensorflow.python.ops.rnn_cell import GRUCell",
  ],
  "name-before-1.0": [
    "import tensorflow.compat.v1 as tf\ntf.mul(x, y)",
    "import tensorflow.compat.v1 as tf\nwriter = tf.train.SummaryWriter('x').add_summary(y)",
    "from tensorflow import merge_all_summaries",
  ],
  "tutorials-are-gone": [
    "from tensorflow.examples.tutorials.mnist import input_data",
    "import tensorflow.examples.tutorials.mnist.input_data as input_data",
  ],
  "order-before-1.0": [
    "import tensorflow.compat.v1 as tf\ntf.concat(1, [x, y])",
    "import tensorflow.compat.v1 as tf\ndim = 1\ntf.concat(dim, [x, y])",
    "import tensorflow.compat.v1 as tf\ntf.concat(concat_dim=1, values=x)",
    "import tensorflow.compat.v1 as tf\ntf.split(1, 2, x)",
    "import tensorflow.compat.v1 as tf\ntf.reverse(x, [False, True])",
    "import tensorflow.compat.v1 as tf\ntf.image.resize_images(x, 28, 28)",
  ],
  "cross-entropy-without-names": [
    "import tensorflow.compat.v1 as tf\ntf.Session()\n"
    "tf.nn.softmax_cross_entropy_with_logits(logits, labels)",
  ],
  "replica-id": [
    "import tensorflow.compat.v1 as tf\ntf.train.SyncReplicasOptimizer(x, 2, replica_id=0)",
  ],
  "flag-of-absl": [
    "import tensorflow.compat.v1 as tf\nflags = tf.app.flags\n"
    "flags.DEFINE_string('log_dir', '', '')",
    "import tensorflow.compat.v1 as tf\ntf.flags.DEFINE_integer(flag_name='v', default_value=0)",
  ],
  "eager-mode": [
    "import tensorflow.compat.v1 as tf; tf.train.Supervisor(); tf.app.run()",
  ],
  "keras-3": [
    "import tensorflow.compat.v1 as tf\ntf.disable_v2_behavior()\ntf.Session()\n"
    "tf.keras.layers.BatchNormalization()(x)",
  ],
  "numpy-name-is-gone": [
    "import numpy as np\nnp.zeros(3, dtype=np.int)",
    "from numpy import float",
    "import tf1ps.v1 as tf\nimport numpy\nnumpy.product([1])",
  ],
  "array-as-number": [
    "import tensorflow as tf\nw = tf.Variable(tf.zeros([1]))\nprint('%f' % session.run(w))",
    "import tensorflow as tf\nw = tf.Variable([0.5]); b = tf.get_variable('b', [1])\n"
    "x, y = session.run([w, b])\nprint('%s %d' % (x, y))",
    "import tensorflow as tf\nclass M:\n  def __init__(self):\n    self.w = tf.Variable("
    "tf.random_normal([1]))\n  def f(self, session):\n    w = session.run(self.w)\n"
    "    print('%.2f' % w)",
  ],
  "iterator-as-list": [
    "hosts = map(str.strip, x.split(','))\nlen(hosts)",
    "import tensorflow as tf\nlen(map(f, x))",
    "zip(a, b)[0]",
    "names = d.keys()\nnames[:3]",
    "d.items().sort()",
    "a = filter(f, x)\nb = a + [1]",
    "import random\nrandom.shuffle(range(3))",
    "import numpy as np\nx = map(float, line)\nnp.array(x)",
  ],
  "local-server-job": [
    "import tensorflow.compat.v1 as tf\ntf.train.Server.create_local_server()\n"
    "tf.device('/job:local/task:0')",
  ],
}


def test_every_rule_has_its_examples():
  names = [rule.name for rule in OF_NAMES if rule.name != "python-2"]
  assert sorted(FOUND) == sorted(names)


@pytest.mark.parametrize("rule, source", [
  (rule, source) for rule, sources in FOUND.items() for source in sources])
def test_a_rule_finds_the_last_line(rule, source):
  assert (source.count("\n") + 1, rule) in find(source), find(source)


@pytest.mark.parametrize("rule, source", [
  (rule.name, source) for rule in OF_NAMES if rule.is_fixed for source in FOUND[rule.name]
  if "python" not in source])
def test_with_the_one_import_a_mended_rule_is_quiet(rule, source):
  ours = source.replace("tensorflow.compat.v1", "tf1ps.v1").replace(
    "import tensorflow;", "import tf1ps.v1 as tensorflow;").replace("tensorflow as", "tf1ps.v1 as")
  ours = ours.replace("from tensorflow", "from tf1ps.v1").replace(
    "import tensorflow.", "import tf1ps.v1.")
  assert rule not in {name for _, name in find(ours)}


@pytest.mark.parametrize("source", [
  # TensorFlow 2's own names, and compat.v1's by their full name
  "import tensorflow as tf\ntf.Variable(1)\ntf.summary.scalar('x', 1)\ntf.queue.FIFOQueue(3)",
  "import tensorflow as tf\ntf.compat.v1.placeholder(tf.float32)",
  "import tensorflow as tf\ntf = tf.compat.v1\ntf.placeholder(tf.float32)",
  "import tensorflow.compat.v1 as tf\ntf.placeholder(tf.float32)",
  # the program asks first
  "try:\n  from tensorflow.contrib import slim\nexcept ImportError:\n  import tf_slim as slim",
  "import tensorflow as tf\nif tf.__version__ < '2':\n  slim = tf.contrib.slim",
  "import tensorflow.compat.v1 as tf\ntf.sub = tf.subtract\n",
  # arguments of today
  "import tensorflow.compat.v1 as tf\ntf.concat([x, y], 1)\ntf.split(x, 2, 1)\ntf.reverse(x, [1])"
  "\ntf.image.resize_images(x, [28, 28])",
  "import tensorflow.compat.v1 as tf\ntf.nn.softmax_cross_entropy_with_logits(None, y, x)",
  # TensorFlow 2 takes them
  "import tensorflow as tf\ntf.nn.softmax_cross_entropy_with_logits(y, x)",
  "import tensorflow as tf\ntf.keras.layers.Dense(3)",
  "import tensorflow.compat.v1 as tf  # with TF_USE_LEGACY_KERAS=1\ntf.layers.dense(x, 3)",
  # a graph of its own, and a library
  "import tensorflow.compat.v1 as tf\nwith tf.Graph().as_default():\n  tf.Session()\ntf.app.run()",
  "import tensorflow.compat.v1 as tf\ntf.enable_eager_execution()\ntf.Session\ntf.app.run()",
  "import tensorflow.compat.v1 as tf\ndef session():\n  return tf.Session()",
  "import tensorflow.compat.v1 as tf\ntf.train.Server.create_local_server()\n"
  "tf.device('/job:localhost')",
  "from absl import flags\nflags.DEFINE_string('data_dir', '', '')",
  # branches for TPUs that need not be taken, and jobs whose name begins with tpu
  "import tf1ps.v1 as tf\nif FLAGS.use_tpu and FLAGS.tpu_name:\n"
  "  tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu_name)",
  "import tf1ps.v1 as tf\ntry:\n  tf.distribute.cluster_resolver.TPUClusterResolver()\n"
  "except ValueError:\n  pass",
  "import tf1ps.v1 as tf\ntf.flags.DEFINE_bool('use_tpu', False, '')\n"
  "tf.contrib.tpu.TPUEstimator(f, use_tpu=tf.flags.FLAGS.use_tpu)",
  "import tf1ps.v1 as tf\ntf.contrib.tpu.TPUEstimator(f, use_tpu=False, **more)",
  "import tf1ps.v1 as tf\nisinstance(strategy, tf.distribute.experimental.TPUStrategy)",
  "import tensorflow.compat.v1 as tf\ntf.device('/job:tpu_worker/task:0/device:CPU:0')",
  # lists, arrays with an index, and other shapes
  "hosts = list(map(f, x))\nlen(hosts)\nhosts[0]\nlen(d.keys())\nrange(9)[3]\nh.values()['a']",
  "from six.moves import map\ndef zip(a):\n  return a\nlen(zip(3))\nfor x in map(f, a): x",
  "df.values[0]\nd.values(1)[0]\nd.items",
  "import numpy as np\nnp.int32, np.float64, np.bool, np.inf\ntry:\n  np.float\n"
  "except AttributeError:\n  pass",
  "import tensorflow.compat.v1 as tf\nw = tf.Variable(tf.zeros([1]))\nw_ = session.run(w)\n"
  "print('%f %s' % (w_[0], w_))\nv = tf.Variable(0.0)\nprint('%f' % session.run(v))\n"
  "m = tf.Variable(tf.zeros([2]))\nprint('%s %%f' % session.run(m))",
])
def test_quiet(source):
  assert not find(source)


def test_a_namespace_is_reported_where_it_is_taken():
  assert find("""\
      import tensorflow.compat.v1 as tf
      slim = tf.contrib.slim
      slim.conv2d(x)
      slim.conv2d(y)
      """) == {(2, "contrib-is-gone")}


def test_one_finding_for_all_names_that_an_import_lacks():
  program = doctor.read_program("program.py", (
    "import tensorflow as tf\nflags = tf.app.flags\nflags.DEFINE_string('a', '', '')\n"
    "tf.Session().run(tf.placeholder(tf.float32))\ntf.global_variables_initializer()\n"))
  finding, = doctor.find_all(program, OF_NAMES)
  assert finding.line == 1 and finding.message == (
    "`tensorflow` is TensorFlow 2, which has no tf.app, tf.Session, tf.placeholder and 1 "
    "more names of this file")


@pytest.mark.parametrize("name", sorted(name_tables.ESTIMATOR))
def test_what_the_package_of_estimators_lacks_is_reported_once(name):
  source = "import tensorflow.compat.v1 as tf\n%s(x)\n" % name
  assert find(source) == {(2, "estimator-without-heir")}
  last = name.rpartition(".")[2]
  source = "from tensorflow.estimator import %s\n%s(x)\n" % (last, last)
  assert find(source) == {(1, "estimator-without-heir")}


def test_a_strategy_is_reported_once_and_not_as_a_name_to_write_anew():
  assert find("""\
      import tensorflow.compat.v1 as tf
      from tensorflow.contrib import distribute
      strategy = distribute.ParameterServerStrategy()
      tf.distribute.experimental.ParameterServerStrategy()
      f(train_distribute=strategy)
      """) == {(2, "strategy-of-estimator"), (4, "strategy-of-estimator")}


def test_a_strategy_without_an_estimator_is_not_reported():
  assert not find("import tensorflow as tf\ntf.distribute.ParameterServerStrategy(x)")


def test_the_file_of_a_namespace_is_not_named():
  program = doctor.read_program(
    "program.py", "from tensorflow.contrib.slim.python.slim import learning")
  finding, = doctor.find_all(program, OF_NAMES)
  assert finding.message == "TensorFlow 2 has no tf.contrib.slim"


# Programs for TensorFlow 1, which tf1ps-run runs as they are.
AS_THEY_ARE = ("flats.py", "digits_model_fn.py")
EXAMPLES = sorted((ROOT / "examples").glob("**/*.py"))


def test_the_examples_have_no_finding():
  assert len(EXAMPLES) > 60
  for path in EXAMPLES:
    found = doctor.find_all(doctor.read_program(str(path), path.read_text()))
    assert not [one for one in found
                if path.name not in AS_THEY_ARE or not one.rule.is_fixed], path


IMPORT, FLAG = "graph-names-are-gone", "flag-of-absl"
OF_LEGACY_PROGRAMS = {
  "actor_critic": {IMPORT},
  "before_1_0": {IMPORT, FLAG, "name-before-1.0", "order-before-1.0", "replica-id"},
  "canned_keras": {IMPORT, "estimator-is-gone"},
  "contrib_layers": {IMPORT, "contrib-is-gone", "tutorials-are-gone"},
  "done_queues": {IMPORT},
  "evaluator": {IMPORT},
  "float_step": {IMPORT},
  "in_graph": {IMPORT},
  "learn_experiment": {IMPORT, "contrib-is-gone", "estimator-is-gone"},
  "managed_session": {IMPORT, "layers-raise"},
  "moving_losses": {IMPORT, "contrib-is-gone", "contrib-without-heir"},
  "plain_session": {IMPORT},
  "queue_runners": {IMPORT},
  "slim_train": {IMPORT, "contrib-is-gone"},
  "supervisor_async": {IMPORT},
  "supervisor_sync": {IMPORT},
  "sync_barrier": {IMPORT, "contrib-is-gone"},
}


@pytest.mark.parametrize("name", sorted(OF_LEGACY_PROGRAMS))
def test_legacy_programs(name):
  path = ROOT / "tests" / "legacy" / "programs" / (name + ".py")
  assert {rule for _, rule in find(path.read_text())} == OF_LEGACY_PROGRAMS[name]


def test_rules_have_names_of_their_own_and_pages_that_exist():
  assert len({rule.name for rule in doctor.RULES}) == len(doctor.RULES)
  for rule in doctor.RULES:
    assert rule.kind in (doctor.GONE, doctor.DIFFERS, doctor.TRAP)
    page, _, anchor = rule.page.partition("#")
    assert (ROOT / page).is_file(), rule.page
    assert not anchor or anchor in links_test.anchors(ROOT / page), rule.page
    assert rule.advice.endswith(".") and not rule.summary.endswith("."), rule.name
